// A small client with tags, tube settings and reasons for failures. Needs only Node.
import { once } from 'node:events';
import { connect } from 'node:net';

const [host, port] = (process.env.BEANPOLE_SERVER ?? '127.0.0.1:11300').split(':');

export class Client {
  static async connect() {
    const client = new Client();
    client.socket = connect(Number(port), host);
    client.chunks = client.socket[Symbol.asyncIterator]();
    client.buffer = Buffer.alloc(0);
    await once(client.socket, 'connect');
    return client;
  }

  // Sends a command with an optional body. Resolves to the words of the reply. A reply other than `wanted` is an error,
  // whose property `reply` contains the first word.
  async send(line, wanted, body) {
    this.socket.write(body === undefined ? `${line}\r\n` : Buffer.concat([`${line}\r\n`, body, '\r\n'].map(Buffer.from)));
    const reply = await this.take(() => this.buffer.indexOf('\r\n'));
    const words = reply.toString().split(' ');
    if (!wanted.split('|').includes(words[0])) {
      throw Object.assign(new Error(`${reply} in response to '${line}'`), { reply: words[0] });
    }
    return words;
  }

  // Resolves to `length()` bytes, without the CR LF that follows them. A negative length means that the length is not
  // known before more input arrives.
  async take(length) {
    while (length() < 0 || this.buffer.length < length() + 2) {
      const { value, done } = await this.chunks.next();
      if (done) throw new Error('the server closed the connection');
      this.buffer = Buffer.concat([this.buffer, value]);
    }
    const [taken, end] = [this.buffer.subarray(0, length()), length() + 2];
    this.buffer = this.buffer.subarray(end);
    return taken;
  }

  // beanstalkd, which has no extensions, executes the body of a job with tags as commands.
  async require(extension) {
    const [, bytes] = await this.send('stats', 'OK');
    const [, found] = (await this.take(() => Number(bytes))).toString().match(/^extensions: "(.*)"/m) ?? ['', ''];
    if (!found.split(' ').includes(extension)) throw new Error(`the server lacks the extension ${extension}`);
  }

  // Resolves to the job's ID. With the tag `idp`, resolves to the ID of an existing job with the same key.
  async put(body, tags = '', { pri = 65536, delay = 0, ttr = 60 } = {}) {
    return (await this.send(`put ${pri} ${delay} ${ttr} ${Buffer.byteLength(body)} ${tags}`.trim(), 'INSERTED', body))[1];
  }

  // Resolves to a job, whose body is a Buffer.
  async reserve() {
    const [, id, bytes] = await this.send('reserve', 'RESERVED');
    return { id, body: await this.take(() => Number(bytes)) };
  }

  // Resolves to the delay before the next try, or to undefined after the last try.
  async fail(id, reason, pri = 65536) {
    const bytes = Buffer.from(reason).subarray(0, 4096);
    return (await this.send(`fail ${id} ${pri} ${bytes.length}`, 'RELEASED|BURIED', bytes))[1];
  }

  delete = id => this.send(`delete ${id}`, 'DELETED');
  ignore = tube => this.send(`ignore ${tube}`, 'WATCHING');
  watch = tube => this.send(`watch ${tube}`, 'WATCHING');
  touch = id => this.send(`touch ${id}`, 'TOUCHED');
  setTube = (tube, settings) => this.send(`set-tube ${tube} ${settings}`, 'SET');
  close = () => this.socket.destroy();
}
