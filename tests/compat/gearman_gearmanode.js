// Tests gearmanode (npm). Its workers use GRAB_JOB or GRAB_JOB_UNIQ. The library does not support handles that
// end with a NUL byte.
'use strict';

const gearmanode = require('gearmanode');
const { host, port, same, ok, run, sleep } = require('./checks');

gearmanode.Client.logger.transports.forEach((transport) => (transport.silent = true));

const client = () => gearmanode.client({ host, port });

function worker(name, call, options) {
  const w = gearmanode.worker({ host, port });
  w.addFunction(name, call, options);
  return w;
}

// Resolves to all messages of the job's worker, ending with the outcome of the job.
function ended(job) {
  return new Promise((resolve) => {
    const said = [];
    job.on('workData', (data) => said.push('data ' + data));
    job.on('warning', (data) => said.push('warning ' + data));
    job.on('status', (status) => said.push(`status ${status.percent_done_num}/${status.percent_done_den}`));
    job.on('complete', () => resolve([...said, 'complete ' + job.response]));
    job.on('failed', () => resolve([...said, 'failed']));
    job.on('exception', (text) => resolve([...said, 'exception ' + text]));
  });
}

const created = (job) => new Promise((resolve) => job.on('created', () => resolve(job.handle)));

async function foreground(name) {
  const [c, w] = [client(), worker(name, (job) => job.workComplete(job.payload.toString().split('').reverse().join('')))];
  same(await ended(c.submitJob(name, 'hello')), ['complete olleh'], 'the result');
  const jobs = [];
  for (let number = 0; number < 50; number++) jobs.push(ended(c.submitJob(name, `ab${number}`)));
  const results = await Promise.all(jobs);
  results.forEach((got, number) => same(got, ['complete ' + `ab${number}`.split('').reverse().join('')], `job ${number}`));
  c.close();
  w.close();
}

async function onTheWay(name) {
  const w = worker(name, (job) => {
    job.sendWorkData('part');
    job.reportWarning('careful');
    job.reportStatus(1, 2);
    job.workComplete('done');
  });
  const c = client();
  same(await ended(c.submitJob(name, '')), ['data part', 'warning careful', 'status 1/2', 'complete done'], 'messages');
  c.close();
  w.close();
}

async function failures(name) {
  const [c, w] = [client(), worker(name, (job) => (job.payload.toString() === 'x' ? job.reportException('why') : job.reportError()))];
  same(await ended(c.submitJob(name, 'f')), ['failed'], 'a failure');
  same(await ended(c.submitJob(name, 'x')), ['failed'], 'an exception, for a client that did not request exceptions');
  same(await ended(c.submitJob(name, 'f')), ['failed'], 'the worker still works');
  c.close();
  w.close();
}

async function background(name) {
  const c = client();
  const seen = [];
  for (const priority of ['LOW', 'NORMAL', 'HIGH']) {
    await created(c.submitJob(name, priority, { background: true, priority }));
  }
  const w = worker(name, (job) => {
    seen.push(job.payload.toString());
    job.workComplete('');
  });
  for (let turn = 0; turn < 200 && seen.length < 3; turn++) await sleep(0.02);
  same(seen, ['HIGH', 'NORMAL', 'LOW'], 'priorities');
  c.close();
  w.close();
}

async function unique(name) {
  const c = client();
  const one = await created(c.submitJob(name, 'a', { background: true, unique: 'same' }));
  const two = await created(c.submitJob(name, 'b', { background: true, unique: 'same' }));
  same(one, two, 'one job');
  const w = worker(name, (job) => {
    same(job.unique, 'same', 'the unique id');
    job.workComplete('');
  }, { withUnique: true });
  await sleep(0.3);
  ok(true, 'done');
  c.close();
  w.close();
}

run([foreground, onTheWay, failures, background, unique]);
