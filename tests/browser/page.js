// Tests the web page in a real browser with the real program. Run by `make browser`.
//
// Arguments: the program, the browser, and optionally a directory for screenshots.
'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const { spawn } = require('node:child_process');
const http = require('node:http');
const net = require('node:net');
const { chromium } = require('playwright-core');

const [program, browserPath, pictures] = process.argv.slice(2);
const MARKUP = '<img src=x onerror="document.title=\'broken\'"><b>bold</b>';

/** Starts a server on free ports. Resolves to its process and its ports. */
function start(...options) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, ['-p', '0', '--http=127.0.0.1:0', ...options], { stdio: ['ignore', 'ignore', 'pipe'] });
    let log = '';
    child.on('exit', () => reject(new Error('the server exited: ' + log)));
    child.stderr.on('data', (text) => {
      log += text;
      const found = /listening on 127\.0\.0\.1:(\d+) and http:\/\/127\.0\.0\.1:(\d+)\//.exec(log);
      if (found) resolve({ child, queue: Number(found[1]), web: Number(found[2]) });
    });
  });
}

/** Sends text to the queue and waits for a number of reply lines. */
function say(port, text, lines) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, '127.0.0.1', () => socket.write(text));
    let heard = '';
    socket.on('error', reject);
    socket.on('data', (bytes) => {
      heard += bytes;
      if (heard.split('\r\n').length > lines) { socket.end(); resolve(heard); }
    });
  });
}

/** Sends an HTTP request with arbitrary headers, which a browser does not permit. */
function ask(port, path, options = {}) {
  return new Promise((resolve, reject) => {
    const request = http.request({ host: '127.0.0.1', port, path, ...options }, (reply) => {
      let body = '';
      reply.on('data', (bytes) => { body += bytes; });
      reply.on('end', () => resolve({ status: reply.statusCode, body }));
    });
    request.on('error', reject);
    request.end(options.body);
  });
}

async function fill(queue) {
  const put = (tube, bodies) => 'use ' + tube + '\r\n'
    + bodies.map((body) => 'put 10 0 60 ' + Buffer.byteLength(body) + '\r\n' + body + '\r\n').join('');
  const mails = Array.from({ length: 40 }, (_, number) => JSON.stringify({ to: 'reader' + number + '@example.org', number }));
  await say(queue, put('mail', mails), 41);
  await say(queue, put('zoo', [MARKUP]) + 'put 10 600 60 5\r\nlater\r\n', 3);
  await say(queue, put('failed', ['{"a":[1,2]}', 'second']) + 'watch failed\r\nignore default\r\nreserve\r\nbury 43 5\r\nreserve\r\nbury 44 5\r\n', 11);
}

/** The errors that the browser has reported on any page. */
const complaints = [];

/**
 * Opens a page. Errors that the browser reports on the page are added to `complaints`, except for the errors in `excuses`. If an
 * error in `excuses` must occur (`always`), but has not occurred when the page is closed, this is also a complaint.
 */
async function open(browser, options = {}, excuses = []) {
  const page = await browser.newPage(options);
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => {
    if (message.type() !== 'error') return;
    const text = message.text(), { url } = message.location();
    const found = excuses.find((one) => one.text.test(text) && one.path.test(url.replace(/^http:\/\/[^/]+/, '')));
    if (found) found.count += 1;
    else complaints.push(text + ' ' + url);
  });
  page.on('close', () => excuses.filter((one) => one.always && !one.count).forEach((one) => complaints.push('not reported: ' + one.text + ' of ' + one.path)));
  return page;
}

const keyOf = (name) => Buffer.from(name).toString('hex').replace(/../g, '%$&');
/** An error that a scene can cause, or must cause: a part of its message, and the path of the request. */
const excuse = (text, path, always = false) => ({ text, path: new RegExp('^' + path + '$'), always, count: 0 });
/** An error about a tube that becomes empty, or whose next job is taken, before the page requests `parts` of the tube. */
const gone = (tube, ...parts) => excuse(/status of 404 /, '/api/tubes/' + keyOf(tube) + '(?:' + parts.join('|') + ')');

const row = (page, tube) => page.locator('#rows tr').filter({ has: page.getByRole('button', { name: tube, exact: true }) });
const cell = (page, tube, label) => row(page, tube).locator('td[data-label="' + label + '"]');
const focus = (page) => page.evaluate(() => document.activeElement.id);
const names = (page) => page.locator('#rows th.name').allTextContents();

/** Waits until `look` resolves to `wanted`. */
async function until(look, wanted) {
  const end = Date.now() + 20000;
  for (;;) {
    const found = await look();
    try { return assert.deepStrictEqual(found, wanted); } catch (error) { if (Date.now() > end) throw error; }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function isWithin(page, what) {
  const [inner, outer] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
  assert.ok(inner <= outer, what + ': ' + inner + ' px in ' + outer);
  const wide = await page.evaluate(() => [...document.querySelectorAll('td, tbody th, dd, button, label, p, li, h2')]
    .filter((one) => one.offsetParent && one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent));
  assert.deepStrictEqual(wide, [], what + ': overlaps its neighbor');
  const cards = await page.evaluate(() => [...document.querySelectorAll('.card')]
    .filter((one) => one.offsetParent && one.scrollWidth > one.clientWidth).map((one) => one.id + ' ' + one.scrollWidth + ' px in ' + one.clientWidth));
  assert.deepStrictEqual(cards, [], what + ': scrolls sideways');
  // Inline elements have no scroll width, and the scroll width of a field includes its text.
  const outside = await page.evaluate(() => [...document.querySelectorAll('a, span, li, h2, button, input, select, textarea, #note')].filter((one) => {
    const box = one.getBoundingClientRect(), around = (one.closest('.card') || document.body).getBoundingClientRect();
    return one.offsetParent && (box.left < around.left - 1 || box.right > around.right + 1);
  }).map((one) => one.id + ' ' + one.textContent));
  assert.deepStrictEqual(outside, [], what + ': extends beyond its card');
  const cut = await page.evaluate(() => [...document.querySelectorAll('input[placeholder]')].filter((one) => {
    const style = getComputedStyle(one), text = document.createElement('canvas').getContext('2d');
    text.font = style.font;
    return one.offsetParent && text.measureText(one.placeholder).width > one.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  }).map((one) => one.id + ' ' + one.placeholder));
  assert.deepStrictEqual(cut, [], what + ': the placeholder does not fit');
}

async function picture(page, name) {
  if (pictures) await page.screenshot({ path: pictures + '/' + name + '.png' });
}

async function sortAndFilter(page) {
  await until(() => names(page), ['default', 'failed', 'mail', 'zoo']);
  const ready = page.locator('#heads th').filter({ hasText: 'ready' });
  await ready.locator('button').click();
  assert.strictEqual(await ready.getAttribute('aria-sort'), 'descending');
  await until(async () => (await names(page))[0], 'mail');
  await page.keyboard.press('Enter');
  assert.strictEqual(await ready.getAttribute('aria-sort'), 'ascending');
  await page.locator('#heads th button').first().click();
  await page.locator('h1').click();
  await page.keyboard.press('/');
  await page.keyboard.type('ai');
  await until(() => names(page), ['failed', 'mail']);
  await page.locator('#filter').fill('');
  await until(async () => (await names(page)).length, 4);
}

async function look(page) {
  await page.getByRole('button', { name: 'mail', exact: true }).focus();
  await page.keyboard.press('Enter');
  await page.locator('#peeks pre').first().waitFor();
  assert.match(await page.locator('#peeks pre').first().textContent(), /^\{\n {2}"to": "reader0@example.org",\n {2}"number": 0\n\}$/);
  await page.keyboard.press('Escape');
  assert.ok(await page.locator('#tube').isHidden());
  await page.getByRole('button', { name: 'zoo', exact: true }).click();
  await until(async () => (await page.locator('#peeks pre').allTextContents())[0], MARKUP);
  assert.strictEqual(await page.locator('#peeks img, #peeks pre b').count(), 0, 'markup in a body is text');
  assert.doesNotMatch(await page.title(), /broken/);
}

/** Bodies are shown unchanged, except for added line breaks and indentation. */
async function bodies(page, queue) {
  const body = '{"id": 12345678901234567890, "amount": 1.10, "n":1e400, "a": 1, "a": 2, "list":[],"text":"a\\"{b}, c: \\u00e9","deep":[{"x":null},[true]]}';
  await say(queue, 'use exact\r\nput 10 0 60 ' + body.length + '\r\n' + body + '\r\n', 2);
  await page.getByRole('button', { name: 'exact', exact: true }).click();
  const shown = () => page.locator('#peeks pre').first().textContent().catch(() => '');
  await until(async () => (await shown()).includes('12345678901234567890'), true);
  const lines = (await shown()).split('\n');
  assert.deepStrictEqual(lines.slice(1, 8).map((line) => line.trim()),
    ['"id": 12345678901234567890,', '"amount": 1.10,', '"n": 1e400,', '"a": 1,', '"a": 2,', '"list": [],', '"text": "a\\"{b}, c: \\u00e9",']);
  await page.keyboard.press('Escape');
}

/** Each tube has a URL. Opening the URL moves the focus to the tube, and the Back button closes the tube. */
async function addresses(page, web) {
  const button = page.getByRole('button', { name: 'mail', exact: true });
  await button.focus();
  await page.keyboard.press('Enter');
  await page.locator('#tube').waitFor();
  assert.match(page.url(), /#tube\/%6d%61%69%6c$/);
  assert.strictEqual(await focus(page), 'tube-name');
  await page.goBack();
  await until(() => page.locator('#tube').isHidden(), true);
  await page.goto('http://127.0.0.1:' + web + '/#tube/%6d%61%69%6c');
  await until(() => page.locator('#tube-name').textContent(), 'mail');
  await page.reload();
  await until(() => page.locator('#tube-name').textContent(), 'mail');
  await page.locator('#close').click();
  await until(() => page.locator('#tube').isHidden(), true);
}

/** While the server hangs or is unreachable, the page must mark its data as outdated and not show "none" instead. */
async function away(browser) {
  const server = await start('--http-admin');
  const page = await open(browser, {}, [excuse(/net::ERR_CONNECTION_REFUSED$/, '/api/\\S+', true),
    excuse(/net::ERR_(CONNECTION_RESET|CONNECTION_CLOSED|EMPTY_RESPONSE|SOCKET_NOT_CONNECTED)$/, '/api/\\S+')]);
  await say(server.queue, 'use kept\r\nput 10 0 60 4\r\nbody\r\n', 2);
  await page.goto('http://127.0.0.1:' + server.web + '/#tube/' + [...'kept'].map((letter) => '%' + letter.charCodeAt(0).toString(16)).join(''));
  await until(async () => (await page.locator('#peeks pre').allTextContents())[0], 'body');
  const outdated = async () => {
    await until(async () => /cannot be reached.*Showing data from/.test(await page.locator('#note').textContent()), true);
    assert.strictEqual((await page.locator('#peeks pre').allTextContents())[0], 'body');
    assert.ok(await page.evaluate(() => document.body.classList.contains('stale')));
  };
  server.child.kill('SIGSTOP');
  try {
    await outdated();
    await until(() => page.locator('#tube').getAttribute('class'), 'card pad gone');
  } finally {
    server.child.kill('SIGCONT');
  }
  await until(() => page.locator('.stale, .gone').count(), 0);
  await until(() => page.locator('#note').textContent(), '');
  assert.strictEqual((await page.locator('#peeks pre').allTextContents())[0], 'body');
  server.child.removeAllListeners('exit');
  server.child.kill();
  await outdated();
  await page.locator('#resume').click();
  const lost = /cannot be reached.*No reply to the last change; it may have been made/;
  await until(async () => lost.test(await page.locator('#note').textContent()), true);
  await page.close();
}

/** A tube name of the maximum length, which offers no place for a line break. */
const LONG = 'x'.repeat(200);

/** Fills each view with wide cells: a long name, a late schedule, a worker that holds a job, a paused tube, and a failed job. */
async function fillWide(queue) {
  const put = (tags, body) => 'put 10 0 600 ' + body.length + ' ' + tags + '\r\n' + body + '\r\n';
  const film = JSON.stringify({ source: '/films/2026/11/the-long-winter.mkv', to: 'video/mp4', height: 1080 });
  const heard = await say(queue, 'use ' + LONG + '\r\nput 10 0 600 4\r\nwide\r\npause-tube default 500\r\n' + put('tub:transcode', film) + put('tub:transcode', film)
    + put('tub:reports idp:nightly-report every:1', 'the report of the night') + put('tub:reports idp:monthly cron:"30 4 1 * *"', 'the report of the month'), 7);
  const [long, failed, held, late] = [...heard.matchAll(/INSERTED (\d+)/g)].map((found) => found[1]);
  const worker = net.connect(queue, '127.0.0.1');
  let told = '';
  worker.on('data', (part) => { told += part; });
  const idle = net.connect(queue, '127.0.0.1', () => idle.write('name idle\r\nwatch ' + LONG + '\r\n'));
  worker.write('name transcoder-7\r\nwatch transcode\r\nreserve\r\nfail ' + failed + ' 0 13\r\nexit status 1\r\nreserve\r\ntouch ' + held + ' 1234567/9999999\r\n');
  await until(() => /TOUCHED/.test(told), true);
  return { workers: [worker, idle], long, failed, held, late };
}

/** At every width, all columns and names must be visible without scrolling sideways. */
async function widths(browser) {
  const server = await start('--http-admin');
  const { workers, long, failed, held, late } = await fillWide(server.queue);
  const page = await open(browser);
  page.on('dialog', (dialog) => dialog.accept());
  // Replaces numbers with those of a queue with millions of jobs.
  const large = (key, value) => (/^(current-jobs-\w+|jobs-held|runs|skipped|missed|tries)$/.test(key) ? 1234567 : /^((pause-)?time-left|job-age|idle|waited|ran)$/.test(key) ? 86399 : value);
  await page.route(/\/api\/(tubes|connections|schedules|history)\?/, async (route) => route.fulfill({ json: JSON.parse(await (await route.fetch()).text(), large) }));
  await page.goto('http://127.0.0.1:' + server.web + '/');
  const places = [['', '#rows .pill', 'paused 23h'], ['#workers', '#rows', 'transcoder-7'], ['#schedules', '#rows', 'still exists (ready)'], ['#history', '#rows', 'exit status 1'],
    ['#failed', '#rows', 'exit status 1transcode1job'], ['#failed/' + keyOf('transcode') + '/' + keyOf('exit status 1'), '#group-jobs', 'the-long-winter'],
    ['#tube/' + keyOf('transcode') + '/buried', '#jobs', 'the-long-winter'], ['#tube/' + keyOf('reports') + '/scheduled', '#jobs', '30 4 1 * *'],
    ['#job/' + long, '#one', LONG], ['#job/' + failed, '#one', 'last error'], ['#job/' + held, '#one', 'held by transcoder-7'], ['#job/' + late, '#one', 'blocked by']];
  for (const width of [320, 480, 768, 900, 901, 1020, 1021, 1024, 1440, 2560]) {
    await page.setViewportSize({ width, height: 900 });
    for (const [hash, place, text] of places) {
      await page.evaluate((to) => { location.hash = to; }, hash);
      await until(async () => (await page.locator(place + ':visible').first().textContent({ timeout: 1000 }).catch(() => '')).includes(text), true);
      await isWithin(page, width + ' px, ' + (hash || '#tubes'));
    }
    await page.evaluate((to) => { location.hash = to; }, '#tube/' + keyOf(LONG));
    await page.locator('#peeks pre').waitFor();
    await page.locator('#set').click();
    await until(() => page.locator('#note').textContent(), LONG + ' has no settings now.');
    await until(async () => (await page.locator('#flags').textContent()).includes('oldest ready job ' + LONG), true);
    await isWithin(page, width + ' px, a long name');
    await picture(page, 'long-' + width);
    await page.evaluate(() => { location.hash = ''; });
    await page.locator('#rows .pill:visible').waitFor();
    const pill = await page.evaluate(() => document.querySelector('.pill').getBoundingClientRect().toJSON());
    assert.ok(pill.left >= 0 && pill.right <= width, width + ': ' + JSON.stringify(pill));
    await picture(page, 'paused-' + width);
  }
  await page.close();
  workers.forEach((worker) => worker.destroy());
  server.child.removeAllListeners('exit');
  server.child.kill();
}

/** Changes a tube with each control. The errors about the emptied tubes are added to `excuses`. */
async function steer(page, excuses) {
  excuses.push(gone('failed', '', '/jobs\\?\\S+', '/peek/ready', '/peek/buried'), gone('later', '', '/jobs\\?\\S+', '/peek/ready'));
  const dialogs = [];
  page.on('dialog', (dialog) => { dialogs.push(dialog.message()); dialog.accept(); });
  await page.getByRole('button', { name: 'failed', exact: true }).click();
  await until(() => cell(page, 'failed', 'buried').textContent(), '2');
  await page.locator('#kick-count').fill('1');
  await page.locator('#kick').click();
  await until(() => cell(page, 'failed', 'buried').textContent(), '1');
  await until(() => cell(page, 'failed', 'ready').textContent(), '1');
  const buried = page.locator('.job').filter({ hasText: 'job 44' });
  await buried.getByRole('button', { name: 'Kick' }).click();
  await until(() => cell(page, 'failed', 'buried').textContent(), '0');
  await page.locator('#pause-secs').fill('500');
  await page.locator('#pause').click();
  await until(async () => /^paused 8m/.test(await cell(page, 'failed', 'paused').textContent()), true);
  await page.locator('#resume').click();
  await until(() => cell(page, 'failed', 'paused').textContent(), 'no');
  await page.locator('#pause-secs').fill('');
  await page.locator('#pause').click();
  await until(() => page.locator('#note').textContent(), 'Enter a number.');
  await until(() => cell(page, 'failed', 'paused').textContent(), 'no');
  await page.locator('summary').filter({ hasText: 'Put a job' }).click();
  await page.locator('#put-body').fill('by hand \u00e9');
  await page.locator('#put button').click();
  await until(() => cell(page, 'failed', 'ready').textContent(), '3');
  await until(() => page.locator('#put-body').inputValue(), '');
  await page.locator('#sweep-state').selectOption('ready');
  await page.locator('#move-to').fill('later');
  await page.locator('#move').click();
  await until(async () => cell(page, 'later', 'ready').textContent().catch(() => ''), '3');
  await page.getByRole('button', { name: 'later', exact: true }).click();
  await page.locator('#clear').click();
  await until(async () => (await names(page)).includes('later'), false);
  assert.deepStrictEqual(dialogs.length, 2, 'a move and a clear require confirmation');
}

/** Lists the jobs of a tube by state in pages with their own URLs, and shows a job by ID with its failures. */
async function jobs(page, web, queue) {
  await page.getByRole('button', { name: 'mail', exact: true }).click();
  const ids = () => page.locator('#jobs th.name').allTextContents();
  await until(async () => (await ids()).length, 20);
  await page.locator('#job-after').click();
  await until(async () => (await ids())[0], '21');
  assert.ok(await page.locator('#job-after').isDisabled());
  await page.locator('#job-before').click();
  await until(async () => (await ids())[0], '1');
  await page.locator('#tabs button').filter({ hasText: 'buried' }).click();
  await until(() => page.locator('#job-more').textContent(), 'No buried jobs.');
  assert.match(page.url(), /\/buried$/);
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'zoo', exact: true }).click();
  await page.locator('#tabs button').filter({ hasText: 'delayed' }).click();
  await until(async () => /^\d+(\d+m )?\d+s105 Blater$/.test((await page.locator('#jobs tr').allTextContents()).join('|')), true);
  assert.strictEqual(await page.locator('#tabs button[aria-pressed=true]').textContent(), 'delayed 1');
  assert.match(page.url(), /\/delayed$/);
  await page.keyboard.press('Escape');
  const heard = await say(queue, 'set-tube frail try:1 dead:grave\r\nuse frail\r\nput 0 0 60 1\r\nx\r\n', 3);
  const id = /INSERTED (\d+)/.exec(heard)[1];
  await say(queue, 'reserve-job ' + id + '\r\nfail ' + id + ' 0 12\r\nno such host\r\n', 3);
  await page.locator('#job-id').fill(await page.evaluate(() => '9999'));
  await page.keyboard.press('Enter');
  await until(() => page.locator('#job-state').textContent(), 'There is no such job now.');
  await page.goBack();
  await page.getByRole('button', { name: 'grave', exact: true }).click();
  await page.locator('#tabs button').filter({ hasText: 'buried' }).click();
  await page.locator('#jobs th.name a').first().click();
  await until(async () => /failed 1 time .*dead letter of frail .*last error: no such host/.test(await page.locator('#one p').textContent()), true);
  await picture(page, 'job');
  await page.keyboard.press('Escape');
  await until(() => page.locator('#job').isHidden(), true);
  assert.strictEqual(await page.locator('#tube-name').textContent(), 'grave', 'a closed job returns to its tube');
  await page.keyboard.press('Escape');
  await until(() => page.locator('#tube').isHidden(), true);
}

/** Shows a job that waits for another job, and a schedule, which is then run immediately. */
async function related(page, web, queue) {
  const put = (tags, body) => 'put 0 0 60 ' + body.length + ' ' + tags + '\r\n' + body + '\r\n';
  const heard = await say(queue, 'use flow\r\n' + put('grp:batch', 'part') + put('aft:batch', 'whole')
    + put('idp:nightly cron:"0 4 * * *"', 'report'), 4);
  const [part, whole, schedule] = [...heard.matchAll(/INSERTED (\d+)/g)].map((found) => found[1]);
  const facts = async (wanted) => until(async () => wanted.test(await page.locator('#one p').textContent()), true);
  const tab = (state) => page.locator('#tabs button').filter({ hasText: state });
  const visit = (state) => page.goto('http://127.0.0.1:' + web + '/#tube/' + Buffer.from('flow').toString('hex').replace(/../g, '%$&') + '/' + state);
  await visit('held');
  await until(() => tab('held').textContent(), 'held 1');
  await page.locator('#jobs th.name a').first().click();
  await facts(/waits for batch/);
  await picture(page, 'held');
  await say(queue, 'delete ' + part + '\r\n', 1);
  await visit('held');
  await until(() => tab('held').textContent(), 'held 0');
  await until(() => tab('ready').textContent(), 'ready 1');
  await tab('scheduled').click();
  await until(() => page.locator('#jobs th.name').allTextContents(), [schedule]);
  await until(async () => /^0 4 \* \* \*in \d+.*0report$/.test((await page.locator('#jobs tr td').allTextContents()).join('')), true);
  await page.locator('#jobs th.name a').first().click();
  await facts(/recurs 0 4 \* \* \* .*next run in .*runs 0 .*skipped 0/);
  await picture(page, 'scheduled');
  await page.locator('#one').getByRole('button', { name: 'Run now' }).click();
  await facts(/runs 1/);
  await visit('ready');
  await until(() => tab('ready').textContent(), 'ready 2');
  await until(async () => (await page.locator('#jobs th.name').allTextContents())[0], whole);
  await page.keyboard.press('Escape');
}

/** Shows failed jobs by reason. A whole group and selected jobs are kicked, moved and deleted. */
async function failures(page, queue, web) {
  const bad = (tube, reason) => 'put 0 0 60 1 tub:' + tube + '\r\nx\r\n';
  const heard = await say(queue, bad('north').repeat(3) + bad('south').repeat(30), 33);
  const ids = [...heard.matchAll(/INSERTED (\d+)/g)].map((found) => found[1]);
  const reasons = (at) => (at < 2 ? 'no route' : at === 2 ? MARKUP : 'exit status 1\nTraceback');
  const fail = (id, at) => 'reserve-job ' + id + '\r\nfail ' + id + ' 0 ' + reasons(at).length + '\r\n' + reasons(at) + '\r\n';
  await say(queue, ids.map(fail).join(''), 99);
  await page.locator('#to-failed').click();
  const rows = () => page.locator('#rows tr').allTextContents();
  // A new view clears the filter.
  await until(() => page.locator('#to-failed').getAttribute('aria-current'), 'page');
  await page.locator('#filter').fill('th');
  await until(rows, ['exit status 1south30job ' + ids[32], MARKUP + 'north1job ' + ids[2], 'no routenorth2job ' + ids[1]]);
  assert.strictEqual(await page.locator('#rows img').count(), 0, 'markup in a reason is text');
  assert.strictEqual(await page.locator('#to-failed').getAttribute('aria-current'), 'page');
  await picture(page, 'failed');
  await page.locator('#filter').fill('t status');
  await until(async () => (await rows()).length, 1);
  await page.locator('#filter').fill('th');
  await until(async () => (await rows()).length, 3);
  await page.getByRole('link', { name: 'exit status 1' }).focus();
  await page.keyboard.press('Enter');
  const shown = async () => (await page.locator('#group-jobs th.name').allTextContents()).map((text) => text.trim());
  await until(shown, ids.slice(13).reverse());
  assert.strictEqual(await focus(page), 'group-name');
  await page.locator('#group-after').click();
  await until(async () => (await shown()).length, 10);
  await page.locator('#group-before').click();
  await until(async () => (await shown()).length, 20);
  await page.locator('#group-jobs').getByRole('link', { name: ids[32], exact: true }).click();
  await until(() => page.locator('#job-name').textContent(), 'Job ' + ids[32]);
  assert.strictEqual(await focus(page), 'job-name');
  assert.strictEqual(await page.locator('#to-failed').getAttribute('aria-current'), 'page');
  await page.keyboard.press('Escape');
  await until(async () => (await shown()).length, 20);
  const dialogs = [];
  const accept = (dialog) => { dialogs.push(dialog.message()); dialog.accept(); };
  page.on('dialog', accept);
  await page.getByLabel('Select job ' + ids[32]).check();
  await page.getByLabel('Select job ' + ids[31]).check();
  await until(() => page.locator('#group-scope').textContent(), 'the 2 jobs selected');
  await picture(page, 'group');
  await page.locator('#group-kick').click();
  await until(() => page.locator('#note').textContent(), 'Kicked 2 jobs.');
  await until(async () => (await shown())[0], ids[30]);
  await page.getByLabel('Select job ' + ids[30]).check();
  await page.locator('#group-move').click();
  await until(() => page.locator('#note').textContent(), 'Enter the name of a tube.');
  assert.strictEqual(await focus(page), 'group-to');
  await page.locator('#group-to').fill('later');
  await page.locator('#group-move').click();
  await until(() => page.locator('#note').textContent(), 'Moved 1 job.');
  await until(() => page.locator('#group-scope').textContent(), 'all jobs of this reason');
  await page.locator('#group-kick').click();
  await until(() => page.locator('#note').textContent(), 'Kicked 27 jobs.');
  await until(() => page.locator('#group-state').textContent(), 'No such jobs now.');
  await page.keyboard.press('Escape');
  await until(rows, [MARKUP + 'north1job ' + ids[2], 'no routenorth2job ' + ids[1]]);
  await page.goto('http://127.0.0.1:' + web + '/' + new URL(await page.getByRole('link', { name: 'no route' }).evaluate((link) => link.href)).hash);
  await until(async () => (await shown()).length, 2);
  await page.locator('#group-delete').click();
  await until(() => page.locator('#note').textContent(), 'Deleted 2 jobs.');
  await page.goBack();
  await until(async () => (await rows()).length, 1);
  await page.locator('#to-tubes').click();
  await until(() => page.locator('#to-tubes').getAttribute('aria-current'), 'page');
  await say(queue, 'flush-tube north\r\nflush-tube south\r\nflush-tube later\r\n', 3);
  await page.locator('#filter').fill('');
  assert.deepStrictEqual(dialogs.map((text) => text.split(' ')[0]), ['Move', 'Kick', 'Delete']);
  page.off('dialog', accept);
}

/** A worker that hangs, a late schedule, and ended jobs must be easy to find and have their own URLs. */
async function views(page, web, queue) {
  const cells = async (column) => (await page.locator('#rows tr > :nth-child(' + column + ')').allTextContents()).map((text) => text.trim());
  await say(queue, 'put 0 0 600 4 tub:slow\r\nhang\r\nput 0 0 60 1 tub:slow idp:nightly every:1\r\nx\r\n', 2);
  const worker = net.connect(queue, '127.0.0.1');
  worker.write('name stuck\r\nwatch slow\r\nignore default\r\nreserve\r\ntouch 999999 1/2\r\n');
  let told = '';
  worker.on('data', (part) => { told += part; });
  await until(async () => /RESERVED (\d+) 4\r\nhang\r\nNOT_FOUND/.test(told), true);
  const [, id] = /RESERVED (\d+)/.exec(told);
  worker.write('touch ' + id + ' 1/4\r\n');
  await page.locator('#to-workers').click();
  await until(async () => page.locator('#rows tr').filter({ hasText: 'stuck' }).allTextContents().then((all) => /^stuckworkingjob \d+ Revokeslow\d+s1\/4/.test(all[0])), true);
  await until(async () => (await page.locator('#flags').textContent()).includes('longest running job'), true);
  await picture(page, 'workers');
  await page.locator('#heads button').filter({ hasText: 'silent' }).focus();
  await page.keyboard.press('Enter');
  await until(async () => page.locator('#heads th').filter({ hasText: 'silent' }).getAttribute('aria-sort'), 'descending');
  await page.locator('#filter').fill('stuck');
  await until(async () => (await cells(1)).join(), 'stuck');
  const dialogs = [];
  const accept = (dialog) => { dialogs.push(dialog.message()); dialog.accept(); };
  page.on('dialog', accept);
  await page.locator('#rows a').filter({ hasText: 'job ' + id }).click();
  await page.getByRole('button', { name: 'Revoke job ' + id }).click();
  await until(() => page.locator('#note').textContent(), 'Revoked job ' + id + '.');
  await until(async () => /^buried/.test(await page.locator('#one').textContent()), true);
  await page.goBack();
  await until(async () => (await cells(2)).join(), 'not reserving');
  await until(async () => (await cells(4)).join(), 'slow');
  await page.locator('#to-schedules').click();
  await until(() => page.locator('#filter').inputValue(), '');
  await page.locator('#filter').fill('stuck');
  const more = () => page.locator('#more').textContent();
  await until(more, "No schedules with 'stuck' in tube.");
  await page.locator('#to-history').click();
  await until(() => page.locator('#filter').inputValue(), '');
  await page.locator('#filter').fill('stuck');
  await until(more, "No ended jobs with 'stuck' in tube or reason.");
  await page.locator('#filter').fill('revoked');
  await until(more, "Ended jobs 1 to 1 with 'revoked' in tube or reason");
  await page.locator('#to-tubes').click();
  await until(() => page.locator('#filter').inputValue(), '');
  await page.locator('#filter').fill('mail');
  await until(more, "Tubes 1 to 1 of 1 with 'mail' in name");
  await page.locator('#to-schedules').click();
  await until(async () => (await cells(1))[0], 'nightly');
  await until(async () => /^missed \d+: job \d+ still exists \(ready\)$/.test((await cells(5))[0]), true);
  // Short words must not wrap, and a list with only one page must not have paging buttons.
  await until(async () => page.locator('#rows td[data-label=tube]').first().evaluate((cell) => cell.offsetWidth >= 80), true);
  await until(async () => page.locator('#rows td[data-label=recurs]').last().evaluate((cell) => {
    const text = document.createRange();
    text.selectNodeContents(cell);
    return new Set([...text.getClientRects()].map((line) => line.top)).size;
  }), 1);
  await until(() => page.locator('#after').isHidden(), true);
  await picture(page, 'schedules');
  // The list has a link to the job that blocks a schedule. Closing the job returns to the list and focuses the link.
  const blocker = page.locator('#rows td[data-label=late] a');
  const name = await blocker.textContent();
  await blocker.focus();
  await page.keyboard.press('Enter');
  await until(() => page.locator('#job-name').textContent(), 'J' + name.slice(1));
  await until(async () => (await page.locator('#one').textContent()).includes('blocks schedule nightly'), true);
  assert.strictEqual(await page.locator('#to-schedules').getAttribute('aria-current'), 'page');
  assert.ok(await page.locator('#view').isHidden());
  await page.locator('#job-close').click();
  await until(() => page.evaluate(() => location.hash + document.activeElement.textContent), '#schedules' + name);
  await page.locator('#rows th.name a').first().click();
  await until(async () => (await page.locator('#one').textContent()).includes('blocked by ' + name + ' (ready)'), true);
  await page.locator('#one a').filter({ hasText: name }).click();
  await until(() => page.locator('#job-name').textContent(), 'J' + name.slice(1));
  await page.keyboard.press('Escape');
  await until(async () => /^Schedule nightly \(job \d+\)$/.test(await page.locator('#job-name').textContent()), true);
  await page.keyboard.press('Escape');
  await until(() => page.locator('#view').isVisible(), true);
  await page.goto('http://127.0.0.1:' + web + '/#failed');
  await until(async () => /^Reasons 1 to (\d) of \1$/.test(await page.locator('#more').textContent()), true);
  await until(() => page.locator('#after').isHidden(), true);
  await page.goto('http://127.0.0.1:' + web + '/#history');
  const above = (await page.locator('#failures').boundingBox()).y < (await page.locator('#heads').boundingBox()).y;
  assert.ok(above, 'the checkbox for failures is above the list');
  await page.locator('#failures').check();
  await until(async () => (await cells(1))[0], 'job ' + id);
  await until(async () => (await cells(8))[0], 'revoked');
  await until(async () => (await cells(8)).includes('exit status 1\\nTraceback'), true);
  await until(async () => page.locator('td[data-label=reason]').first().evaluate((cell) => cell.offsetWidth >= 250), true);
  await page.locator('#rows th.name a').first().click();
  await until(() => page.locator('#job-name').textContent(), 'Job ' + id);
  await page.goBack();
  await until(() => page.locator('#to-history').getAttribute('aria-current'), 'page');
  await until(async () => {
    const verdicts = await cells(4);
    return verdicts.length > 0 && verdicts.every((verdict) => ['buried', 'failed'].includes(verdict));
  }, true);
  await picture(page, 'history');
  await page.reload();
  await until(() => page.locator('#to-history').getAttribute('aria-current'), 'page');
  await until(async () => /nightly missed/.test(await page.locator('#flags').textContent()), true);
  assert.strictEqual(await page.locator('#charts svg').count(), 3);
  assert.match(await page.locator('#charts').textContent(), /ready in the last hour: now \d+, up to \d+done/);
  await page.locator('#failures').uncheck();
  await page.locator('#flags li').filter({ hasText: 'failures in the last hour' }).locator('a').click();
  await until(() => page.locator('#failures').isChecked(), true);
  assert.deepStrictEqual(dialogs, ['Take job ' + id + ' from its worker and bury it?']);
  page.off('dialog', accept);
  worker.destroy();
  await say(queue, 'flush-tube slow\r\n', 1);
  await page.locator('#to-tubes').click();
}

/** Jobs that no worker takes, the holder of a job, an ended job and the oldest job must be easy to find. */
async function causes(browser) {
  const server = await start();
  const page = await open(browser, { viewport: { width: 320, height: 568 } }, [gone('boxes', '/peek/ready')]);
  const worker = net.connect(server.queue, '127.0.0.1');
  let told = '';
  worker.on('data', (part) => { told += part; });
  worker.write('name packer\r\nwatch boxes\r\nuse boxes\r\nput 0 0 600 1\r\nx\r\nput 0 0 600 1\r\ny\r\n');
  await until(() => /INSERTED 2/.test(told), true);
  await page.goto('http://127.0.0.1:' + server.web + '/');
  await until(() => cell(page, 'boxes', 'waiting').textContent(), '0 of 1 watching');
  await until(() => cell(page, 'default', 'waiting').textContent(), '0');
  await until(async () => (await page.locator('#flags').textContent()).includes('\u26a0 boxes: 2 ready, none of 1 worker reserving'), true);
  const oldest = page.locator('#flags a').filter({ hasText: 'boxes' });
  await oldest.click();
  await until(() => page.locator('#tube-name').textContent(), 'boxes');
  await until(async () => (await page.locator('#times').textContent()).includes('workers1 watching, 0 waiting'), true);
  await page.goto('http://127.0.0.1:' + server.web + '/#workers');
  await until(async () => (await page.locator('#rows tr').textContent()).startsWith('packernot reservingdefault boxes'), true);
  assert.strictEqual(await page.locator('#rows .bad').count(), 0);
  await page.route(/connections\?.*limit=100/, async (route) => {
    const found = await (await route.fetch()).json();
    found.connections.forEach((one) => { one.idle = 300; });
    await route.fulfill({ json: found });
  });
  await until(() => page.locator('#rows .bad').allTextContents(), ['not reserving']);
  assert.strictEqual(await page.locator('#rows .bad').getAttribute('title'), 'Marked after 5 minutes');
  await page.unroute(/connections\?.*limit=100/);
  // A row must show why the filter selects it.
  worker.write('use crates\r\n');
  await page.locator('#filter').fill('crate');
  await until(async () => (await page.locator('#rows tr').allTextContents()).map((text) => text.includes('default boxes uses crates')), [true]);
  await page.locator('#filter').fill('');
  worker.write('use boxes\r\nreserve\r\n');
  await until(() => /RESERVED 1/.test(told), true);
  await page.goto('http://127.0.0.1:' + server.web + '/#tube/' + keyOf('boxes') + '/reserved');
  await until(() => page.locator('#jobs th.name').allTextContents(), ['1']);
  assert.strictEqual(await page.locator('#tabs button[aria-pressed=true]').textContent(), 'reserved 1');
  await page.goto('http://127.0.0.1:' + server.web + '/#job/1');
  await until(async () => /running for \d+s, silent for \d+s \u00b7 reserved for another/.test(await page.locator('#one p').textContent()), true);
  assert.strictEqual(await page.getByRole('button', { name: 'Revoke' }).count(), 0, 'the page cannot change anything');
  await page.getByRole('link', { name: 'packer' }).click();
  await until(() => page.evaluate(() => location.hash.split('/')[0] + document.activeElement.textContent), '#workersjob 1');
  await until(async () => (await page.locator('#rows tr[aria-current=true]').textContent()).startsWith('packerworking'), true);
  await page.getByRole('link', { name: 'boxes', exact: true }).click();
  await until(() => page.locator('#tube-name').textContent(), 'boxes');
  worker.write('delete 1\r\nreserve\r\nbury 2 0\r\npause-tube boxes 99\r\n');
  await until(() => /PAUSED/.test(told), true);
  await page.goto('http://127.0.0.1:' + server.web + '/#job/1');
  await until(async () => /^Ended at [\d:]+ in boxes: done, waited .*, ran /.test(await page.locator('#job-state').textContent()), true);
  await page.goto('http://127.0.0.1:' + server.web + '/#tube/boxes/buried');
  await until(() => page.locator('#jobs th.name').allTextContents(), ['2']);
  assert.strictEqual(await page.locator('#tube-name').textContent(), 'boxes');
  const sample = '[\\d.]+ m?s / [\\d.]+ m?s / [\\d.]+ m?s';
  const times = new RegExp('^oldest ready jobnoneoldest delayed jobnoneoldest buried job(\\d+m )?\\d+swaited, p50 / p95 / p99' + sample + 'ran, p50 / p95 / p99' + sample + 'workers');
  await until(async () => times.test(await page.locator('#times').textContent()), true);
  await page.evaluate(() => scrollTo(0, 0));
  await page.locator('#sum a').click();
  await until(() => page.locator('#to-failed').getAttribute('aria-current'), 'page');
  await until(() => page.locator('#rows').evaluate((list) => list.offsetHeight > 0 && list.getBoundingClientRect().bottom <= innerHeight), true);
  await page.locator('#flags a').filter({ hasText: /^1$/ }).last().click();
  await until(() => names(page), ['boxes', 'default']);
  await until(() => page.locator('#heads th').filter({ hasText: 'paused' }).getAttribute('aria-sort'), 'descending');
  await page.close();
  worker.destroy();
  server.child.removeAllListeners('exit');
  server.child.kill();
}

/** Changes the settings of a tube with a form. */
async function settings(page) {
  await page.getByRole('button', { name: 'zoo', exact: true }).click();
  await page.locator('#settings').fill('try:3:10 max:2');
  await page.locator('#set').click();
  await until(() => page.locator('#note').textContent(), 'Set.');
  assert.strictEqual(await page.locator('#note').getAttribute('class'), 'good', 'a success is not shown as a warning');
  await until(async () => (await page.locator('#times dd').allTextContents()).pop(), 'try:3:10 max:2');
  await page.keyboard.press('Escape');
  await until(() => page.locator('#note').textContent(), '');
  // For a tube that does not exist, the page must not show the settings of another tube.
  await page.evaluate(() => { location.hash = '#tube/nosuch'; });
  await until(() => page.locator('#tube-state').textContent(), 'There is no such tube now.');
  assert.deepStrictEqual(await Promise.all(['#tube-name', '#times', '#steer', '#tabs'].map((part) => page.locator(part).isVisible())), [true, false, false, false]);
  await page.keyboard.press('Escape');
}

/** A late reply to an older request must not replace the reply to a newer one, and a poll must not end a selection. */
async function order(browser, server) {
  const page = await open(browser);
  let release, measure, samples = 0;
  const gate = new Promise((resolve) => { release = resolve; }), second = new Promise((resolve) => { measure = resolve; });
  await page.route(/api\/tubes\?filter=&/, async (route) => { samples += 1; if (samples > 1) await second; await route.continue(); });
  await page.goto('http://127.0.0.1:' + server.web + '/');
  await until(async () => (await names(page)).includes('zoo'), true);
  assert.strictEqual(await cell(page, 'zoo', 'put/s').textContent(), '\u2026', 'a rate needs two samples');
  measure();
  await until(() => cell(page, 'zoo', 'put/s').textContent(), '0');
  await page.route(/tubes\?.*filter=fai/, async (route) => { await gate; await route.continue(); });
  const late = page.waitForResponse(/filter=fai/);
  await page.locator('#filter').fill('fai');
  await page.locator('#filter').fill('mai');
  await until(() => names(page), ['mail']);
  release();
  await (await late).finished();
  const polled = () => page.waitForResponse(/filter=mai/).then((reply) => reply.finished());
  const chosen = () => page.evaluate(() => getSelection().toString());
  await page.evaluate(() => getSelection().selectAllChildren(document.querySelector('#rows td')));
  assert.deepStrictEqual([await names(page), await chosen()], [['mail'], '40']);
  await polled();
  await polled();
  assert.deepStrictEqual([await names(page), await chosen()], [['mail'], '40']);
  await page.close();
}

/** A late reply about a tube must not replace the tube that is open now, not even until the next poll. */
async function orderOfDetails(browser, server) {
  const page = await open(browser);
  let release;
  const gate = new Promise((resolve) => { release = resolve; });
  const of = (tube, part) => new RegExp('/api/tubes/' + keyOf(tube) + '/' + part);
  await page.route(of('mail', 'jobs'), async (route) => { await gate; await route.continue(); });
  await page.goto('http://127.0.0.1:' + server.web + '/');
  await until(async () => (await names(page)).includes('zoo'), true);
  await page.evaluate(() => {
    window.seenBodies = [];
    new MutationObserver(() => { window.seenBodies.push(document.querySelector('#peeks').textContent); }).observe(document.querySelector('#tube'), { childList: true, subtree: true });
  });
  const asked = page.waitForRequest(of('mail', 'jobs')), late = page.waitForResponse(of('mail', 'jobs'));
  await page.getByRole('button', { name: 'mail', exact: true }).click();
  await asked;
  await page.getByRole('button', { name: 'zoo', exact: true }).click();
  await until(async () => (await page.locator('#peeks pre').allTextContents())[0], MARKUP);
  release();
  await (await late).finished();
  for (let polls = 0; polls < 2; polls += 1) await (await page.waitForResponse(of('zoo', 'jobs'))).finished();
  const wrong = await page.evaluate(() => window.seenBodies.filter((text) => text.includes('reader0')));
  assert.deepStrictEqual([await page.locator('#tube-name').textContent(), wrong], ['zoo', []]);
  await page.close();
}

/** A poll must not end a selection in the facts of a job, in the figures of a tube, or in the figures of the server. */
async function selections(browser) {
  const server = await start();
  const page = await open(browser);
  await say(server.queue, 'use chosen\r\nput 10 0 60 4\r\nbody\r\n', 2);
  for (const [hash, place] of [['#job/1', '#one p'], ['#tube/' + keyOf('chosen'), '#peeks p'], ['#tube/' + keyOf('chosen'), '#times dd'], ['', '#server dd']]) {
    await page.goto('http://127.0.0.1:' + server.web + '/' + hash);
    if (!hash) await page.locator('summary').last().click();
    await page.locator(place).first().waitFor();
    const chosen = () => page.evaluate(() => getSelection().toString());
    await page.evaluate((of) => getSelection().selectAllChildren(document.querySelector(of)), place);
    const before = await chosen();
    assert.notStrictEqual(before, '');
    // The first of these polls may already have been in progress.
    for (let polls = 0; polls < 3; polls += 1) await (await page.waitForResponse(/\/api\/server$/)).finished();
    assert.strictEqual(await chosen(), before, place);
    const text = () => page.locator(place).first().textContent(), old = await text();
    await page.evaluate(() => getSelection().empty());
    await until(async () => (await text()) === old, false);
  }
  await page.close();
  server.child.removeAllListeners('exit');
  server.child.kill();
}

/** A request for the overview that fails must not remove its figures, and one that takes long must not be repeated. */
async function overview(browser) {
  const server = await start();
  const page = await open(browser, {}, [excuse(/status of 500 /, '/api/schedules\\?\\S+', true), excuse(/status of 403 /, '/api/overview', true)]);
  // Makes the pause between two requests for the overview shorter than the pause between two polls.
  await page.addInitScript(() => { const now = performance.now.bind(performance); performance.now = () => now() * 9; });
  await say(server.queue, 'put 10 0 60 1 tub:rare idp:rare every:9999\r\nx\r\n', 1);
  await page.goto('http://127.0.0.1:' + server.web + '/');
  const text = (part) => page.locator(part).textContent();
  const has = (flag) => until(async () => (await text('#flags')).includes(flag), true);
  await has('schedules in time');
  await page.route(/\/api\/schedules\?/, (route) => route.fulfill({ status: 500, json: { error: 'out of order' } }));
  await until(() => text('#overview-state'), 'out of order');
  assert.match(await page.locator('#overview').getAttribute('class'), /gone/, 'the overview is marked as outdated');
  await has('schedules in time');
  await page.reload();
  await until(() => text('#overview-state'), 'out of order');
  assert.strictEqual(await text('#flags'), '');
  await page.unroute(/\/api\/schedules\?/);
  await until(() => text('#overview-state'), '');
  assert.doesNotMatch(await page.locator('#overview').getAttribute('class'), /gone/);
  await has('schedules in time');
  await has('paused tubes');
  // A client that may not see all tubes has no totals, but the other figures.
  await page.route(/\/api\/overview$/, (route) => route.fulfill({ status: 403, json: { error: 'no right' } }));
  await until(async () => (await text('#flags')).includes('paused tubes'), false);
  assert.match(await text('#flags'), /schedules in time/);
  assert.strictEqual(await text('#overview-state'), '');
  await page.unroute(/\/api\/overview$/);
  let requests = 0, release;
  const gate = new Promise((resolve) => { release = resolve; });
  await page.route(/\/api\/overview$/, async (route) => { requests += 1; await gate; await route.continue(); });
  await until(() => requests, 1);
  for (let polls = 0; polls < 3; polls += 1) await (await page.waitForResponse(/\/api\/server$/)).finished();
  assert.strictEqual(requests, 1);
  release();
  await has('paused tubes');
  await page.close();
  server.child.removeAllListeners('exit');
  server.child.kill();
}

/** Mistakes lose nothing: deletions are confirmed, and an empty field is not 0. Messages disappear, and ages grow. */
async function slips(browser, server) {
  const page = await open(browser);
  const id = /INSERTED (\d+)/.exec(await say(server.queue, 'set-tube slip try:3\r\nuse slip\r\nput 10 0 60 4\r\nkeep\r\n', 3))[1];
  await page.goto('http://127.0.0.1:' + server.web + '/#tube/' + keyOf('slip'));
  const facts = page.locator('#peeks p').first();
  await facts.waitFor();
  const age = await facts.textContent();
  const asked = [], note = (text) => until(() => page.locator('#note').textContent(), text);
  page.on('dialog', (dialog) => { asked.push(dialog.message()); dialog.dismiss(); });
  await page.locator('.job').getByRole('button', { name: 'Delete' }).click();
  await page.locator('summary').filter({ hasText: 'Put a job' }).click();
  await page.locator('#put button').click();
  await page.locator('#settings').fill('');
  await page.locator('#set').click();
  assert.deepStrictEqual(asked, ['Delete job ' + id + '?', 'Put a job with an empty body?', 'Take all settings of slip away?']);
  await page.locator('#put-body').fill('more');
  for (const [field, button, message] of [['#put-pri', '#put button', 'Enter a number.'], ['#put-delay', '#put button', 'Enter a number.'], ['#put-ttr', '#put button', 'Enter a number.'],
    ['#kick-count', '#kick', 'Enter a number.'], ['#pause-secs', '#pause', 'Enter a number.'], ['#move-to', '#move', 'Enter the name of a tube.']]) {
    const value = await page.locator(field).inputValue();
    await page.locator(field).fill('');
    await page.locator(button).click();
    await note(message);
    assert.strictEqual('#' + await focus(page), field);
    await page.locator(field).fill(value);
    // Clears the message, so that the next check cannot match the message about the previous field.
    await page.evaluate(() => { document.querySelector('#note').textContent = ''; });
  }
  await page.locator('#kick').click();
  await note('Kicked 0.');
  await note('');
  await until(async () => (await facts.textContent()) !== age, true);
  assert.strictEqual(asked.length, 3, 'an empty field is reported before a question is asked');
  assert.match(await say(server.queue, 'peek ' + id + '\r\nstats-tube slip\r\n', 4), /keep[^]*current-jobs-ready: 1\n[^]*pause: 0\n/);
  assert.match(await say(server.queue, 'stats-tube slip\r\n', 2), /try:3/);
  await page.close();
  await say(server.queue, 'flush-tube slip\r\nset-tube slip\r\n', 2);
}

/** The page must work below a URL prefix of a reverse proxy. Tables and rows must have names for screen readers. */
async function proxied(browser, server) {
  const proxy = http.createServer((request, reply) => {
    if (!request.url.startsWith('/queue/')) { reply.statusCode = 404; reply.end(); return; }
    const options = { host: '127.0.0.1', port: server.web, path: request.url.slice(6), headers: { Host: '127.0.0.1' } };
    http.get(options, (found) => { reply.writeHead(found.statusCode, found.headers); found.pipe(reply); });
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const page = await open(browser);
  await page.goto('http://127.0.0.1:' + proxy.address().port + '/queue/');
  const table = page.getByRole('table', { name: 'Tubes' });
  await until(() => table.getByRole('rowheader', { name: 'mail' }).count(), 1);
  await page.getByRole('button', { name: 'mail', exact: true }).click();
  await until(() => page.locator('#peeks pre').count(), 1);
  assert.match(await page.locator('link[rel=icon]').getAttribute('href'), /^data:image/);
  await page.close();
  proxy.close();
}

/** The server sorts all tubes, so the page shows a single buried job even if there are more tubes than it lists. */
async function many(browser) {
  const server = await start();
  const socket = net.connect(server.queue, '127.0.0.1');
  socket.write(Array.from({ length: 1200 }, (_, at) => 'watch t' + at + '\r\n').join(''));
  await until(() => say(server.queue, 'stats-tube t1199\r\n', 1).then((text) => text.startsWith('OK')), true);
  const heard = await say(server.queue, 'use t777\r\nput 0 0 60 1\r\nx\r\n', 2);
  const id = /INSERTED (\d+)/.exec(heard)[1];
  await say(server.queue, 'reserve-job ' + id + '\r\nbury ' + id + ' 0\r\n', 3);
  const page = await open(browser);
  await page.goto('http://127.0.0.1:' + server.web + '/');
  await page.locator('#heads button').filter({ hasText: 'buried' }).click();
  await until(async () => (await names(page))[0], 't777');
  await page.close();
  socket.destroy();
  server.child.removeAllListeners('exit');
  server.child.kill();
}

/** The color of the page around the cards, in each color scheme. */
const BACKGROUNDS = { light: [0xf6, 0xf7, 0xf4], dark: [0x14, 0x18, 0x15] };
/** Device pixels per CSS pixel of the pictures. With two, the strokes of letters in every font fully cover some pixels. */
const SCALE = 2;
/** The width of the margin, in CSS pixels, that must be empty on both sides of a picture. */
const MARGIN = 8;

/** Returns the boxes of all controls and of all visible words. `owner` is the number of the control that contains a word. */
const boxesOf = (page) => page.evaluate(() => {
  const all = [...document.querySelectorAll('button, input, select, textarea, summary')].filter((one) => one.checkVisibility());
  const place = (box) => [box.left + scrollX, box.top + scrollY, box.right + scrollX, box.bottom + scrollY].map(Math.round);
  const boxes = all.map((one, owner) => ({ owner, isControl: true, text: one.localName + ' ' + one.id + one.textContent, box: place(one.getBoundingClientRect()) }));
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode, parent = text.parentElement, range = document.createRange(), frame = parent.closest('pre');
    if (!parent.checkVisibility() || parent.closest('script, option, textarea')) continue;
    for (const word of text.data.matchAll(/\S*[\p{L}\p{N}]\S*/gu)) {
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      for (const box of range.getClientRects()) {
        if (box.width < 2 || box.height < 2 || (frame && box.bottom > frame.getBoundingClientRect().bottom)) continue;
        boxes.push({ owner: all.indexOf(parent.closest('button, summary')), isDisabled: Boolean(parent.closest(':disabled')), text: word[0], box: place(box) });
      }
    }
  }
  return boxes;
});

/** Returns the pairs of boxes that overlap. Ignores the top and the bottom of a word, where the boxes of some fonts overlap. */
function overlaps(boxes) {
  const cores = boxes.map((one) => {
    const [left, top, right, bottom] = one.box, cut = one.isControl ? 0 : (bottom - top) * 0.2;
    return { ...one, box: [left, top + cut, right, bottom - cut] };
  });
  const meet = (one, other) => [0, 1].every((axis) => Math.min(one.box[axis + 2], other.box[axis + 2]) - Math.max(one.box[axis], other.box[axis]) > 1);
  const isInside = (one, other) => one.owner === other.owner && one.isControl !== other.isControl;
  return cores.flatMap((one, at) => cores.slice(at + 1).filter((other) => meet(one, other) && !isInside(one, other)).map((other) => 'overlap: ' + one.text + ' and ' + other.text));
}

/** Returns the problems of a picture: its margins must have the color `back`, and each word needs a contrast of 4.5. Runs in the page `lens`. */
const examine = (lens, png, boxes, back, width) => lens.evaluate(async ({ data, boxes, back, width, scale, margin }) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: 'image/png' }));
  const canvas = Object.assign(document.createElement('canvas'), { width: image.width, height: image.height });
  const context = canvas.getContext('2d', { willReadFrequently: true });
  context.drawImage(image, 0, 0);
  const pixels = context.getImageData(0, 0, image.width, image.height).data;
  const at = (x, y) => pixels.subarray((y * image.width + x) * 4, (y * image.width + x) * 4 + 3);
  const problems = image.width === width * scale ? [] : ['width: ' + image.width / scale + ' px in ' + width];
  const wrong = (x, y) => at(x, y).some((part, which) => Math.abs(part - back[which]) > 4);
  for (const [side, from] of [['left', 0], ['right', image.width - margin * scale]]) {
    let first = -1;
    for (let y = 0; y < image.height && first < 0; y += 1) for (let x = from; x < from + margin * scale && first < 0; x += 1) if (wrong(x, y)) first = y;
    if (first >= 0) problems.push('margin: the ' + side + ' margin is not empty ' + first / scale + ' px below the top');
  }
  const light = (color) => color.map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, which) => sum + part * [0.2126, 0.7152, 0.0722][which], 0.05);
  for (const { text, box, isControl, isDisabled } of boxes) {
    if (isControl || isDisabled) continue;
    const [left, top, right, bottom] = box.map((edge) => edge * scale), counts = new Map();
    for (let y = Math.max(0, top); y < Math.min(bottom, image.height); y += 1) for (let x = Math.max(0, left); x < Math.min(right, image.width); x += 1) {
      const [red, green, blue] = at(x, y), color = (red << 16) | (green << 8) | blue;
      counts.set(color, (counts.get(color) || 0) + 1);
    }
    // The background has most of the pixels, and the word has some pixels whose color is not mixed with the background.
    const colors = [...counts].map(([color, count]) => ({ light: light([color >> 16, (color >> 8) & 255, color & 255]), count })).sort((one, other) => other.count - one.count);
    const ground = colors.length ? colors[0].light : 1, contrast = (one) => Math.max(one.light, ground) / Math.min(one.light, ground);
    const clear = colors.filter((one) => contrast(one) >= 4.5).reduce((sum, one) => sum + one.count, 0);
    if (clear < 2) problems.push('contrast: ' + Math.max(0, ...colors.map(contrast)).toFixed(1) + ' of ' + text);
  }
  return problems;
}, { data: png.toString('base64'), boxes, back, width, scale: SCALE, margin: MARGIN });

/** Takes a picture of the whole page and returns its problems. Repeats this if the page has changed meanwhile. */
async function inspect(page, lens, scheme, name) {
  for (let tries = 0; tries < 50; tries += 1) {
    const boxes = await boxesOf(page), png = await page.screenshot({ fullPage: true, animations: 'disabled' });
    if (JSON.stringify(boxes) !== JSON.stringify(await boxesOf(page))) continue;
    if (pictures && name) fs.writeFileSync(pictures + '/' + name + '.png', png);
    assert.ok(boxes.filter((one) => !one.isControl).length > 20, 'a page without text');
    return [...overlaps(boxes), ...await examine(lens, png, boxes, BACKGROUNDS[scheme], page.viewportSize().width)];
  }
  throw new Error('the page does not stop changing: ' + name);
}

/** Each check of the pictures must detect a defect. */
async function defects(browser, lens, web) {
  const page = await open(browser, { viewport: { width: 320, height: 640 }, deviceScaleFactor: SCALE, colorScheme: 'light' });
  await page.goto('http://127.0.0.1:' + web + '/');
  await until(async () => (await names(page)).includes('mail'), true);
  for (const [part, style, problem] of [['h1', { color: '#bbb' }, /^contrast: /], ['body', { background: '#fff' }, /^margin: the left/], ['h1', { position: 'relative', left: '-14px' }, /^margin: the left/],
    ['#sum', { position: 'absolute', left: '0', width: '318px', textAlign: 'right', background: '#ddd' }, /^margin: the right/], ['body', { width: '330px' }, /^width: /],
    ['nav', { position: 'absolute', top: '1rem', left: '1rem' }, /^overlap: /]]) {
    await page.evaluate(([of, to]) => Object.assign(document.querySelector(of).style, to), [part, style]);
    const problems = await inspect(page, lens, 'light');
    assert.ok(problems.some((one) => problem.test(one)), problem + ': ' + problems);
    await page.evaluate((of) => document.querySelector(of).removeAttribute('style'), part);
  }
  await page.close();
}

/** Every view is checked as a picture at five widths, in light and dark mode. */
async function forms(browser, web) {
  const lens = await browser.newPage();
  await defects(browser, lens, web);
  for (const scheme of ['light', 'dark']) {
    for (const [width, height] of [[320, 640], [480, 800], [768, 1024], [1024, 768], [1440, 900]]) {
      const page = await open(browser, { viewport: { width, height }, colorScheme: scheme, deviceScaleFactor: SCALE });
      const check = async (view) => {
        await isWithin(page, view + ', ' + scheme + ' ' + width);
        assert.deepStrictEqual(await inspect(page, lens, scheme, scheme + '-' + width + '-' + view), [], view + ', ' + scheme + ' ' + width);
      };
      await page.goto('http://127.0.0.1:' + web + '/');
      await until(async () => (await names(page)).includes('mail'), true);
      await page.locator('#overview').waitFor();
      await check('tubes');
      for (const view of ['workers', 'schedules', 'history', 'failed']) {
        await page.locator('#to-' + view).click();
        await until(async () => (await page.locator('#heads th').count()) > 3 && (await page.locator('#view').getAttribute('aria-label')).toLowerCase() === view, true);
        await check(view);
      }
      await page.locator('#rows th.name a').first().click();
      await page.locator('#group-jobs th.name').first().waitFor();
      await check('group');
      await page.evaluate(() => { location.hash = '#job/1'; });
      await page.locator('#one pre').waitFor();
      await check('job');
      await page.locator('#to-tubes').click();
      await page.getByRole('button', { name: 'mail', exact: true }).click();
      await page.locator('#peeks pre').first().waitFor();
      await page.locator('summary').last().click();
      await check('tube');
      await page.close();
    }
  }
  await lens.close();
}

async function refusals(web) {
  const headers = { Host: '127.0.0.1:' + web, 'Content-Type': 'application/json', 'X-Beanpole': '1' };
  const post = (more) => ask(web, '/api/tubes/mail/clear', { method: 'POST', body: '{}', headers: { ...headers, ...more, 'Content-Length': 2 } });
  assert.strictEqual((await post({ Origin: 'http://evil.example' })).status, 403);
  assert.strictEqual((await post({ Host: 'evil.example' })).status, 421);
  assert.strictEqual((await ask(web, '/', { headers: { Host: 'evil.example:' + web } })).status, 421);
}

/** Another site in the same browser must not be able to read or change anything. */
async function otherSite(browser, web) {
  const site = http.createServer((_, reply) => { reply.setHeader('Content-Type', 'text/html'); reply.end('<p>another site'); });
  await new Promise((resolve) => site.listen(0, '127.0.0.1', resolve));
  const page = await browser.newPage();
  await page.goto('http://127.0.0.1:' + site.address().port + '/');
  const tried = await page.evaluate(async (target) => {
    const read = await fetch(target + '/api/tubes').then(() => 'read', () => 'refused');
    const options = { method: 'POST', headers: { 'Content-Type': 'application/json', 'X-Beanpole': '1' }, body: '{}' };
    const written = await fetch(target + '/api/tubes/mail/clear', options).then(() => 'written', () => 'refused');
    const simple = await fetch(target + '/api/tubes/mail/clear', { method: 'POST', mode: 'no-cors', body: '{}' }).then((reply) => reply.type, () => 'refused');
    return [read, written, simple];
  }, 'http://127.0.0.1:' + web);
  assert.deepStrictEqual(tried.slice(0, 2), ['refused', 'refused']);
  const left = JSON.parse((await ask(web, '/api/tubes/mail', { headers: { Host: 'localhost' } })).body);
  assert.strictEqual(left['current-jobs-ready'], 40, 'nothing was cleared');
  await page.close();
  site.close();
}

async function main() {
  const server = await start('--http-admin');
  const readonly = await start();
  const browser = await chromium.launch({ executablePath: browserPath, args: ['--no-sandbox', '--disable-gpu'] });
  try {
    await fill(server.queue);
    const excuses = [], page = await open(browser, { viewport: { width: 1280, height: 800 } }, excuses);
    const strange = [];
    page.on('request', (request) => { if (!request.url().startsWith('http://127.0.0.1:' + server.web + '/')) strange.push(request.url()); });
    await page.goto('http://127.0.0.1:' + server.web + '/');
    await sortAndFilter(page);
    await look(page);
    await until(async () => /^\(2 buried\) beanpole /.test(await page.title()), true);
    await bodies(page, server.queue);
    await addresses(page, server.web);
    await jobs(page, server.web, server.queue);
    await related(page, server.web, server.queue);
    await settings(page);
    await failures(page, server.queue, server.web);
    await views(page, server.web, server.queue);
    await steer(page, excuses);
    assert.deepStrictEqual(strange, [], 'requests to other servers');
    await forms(browser, server.web);
    await widths(browser);
    await order(browser, server);
    await orderOfDetails(browser, server);
    await selections(browser);
    await overview(browser);
    await slips(browser, server);
    await proxied(browser, server);
    await many(browser);
    await causes(browser);
    await away(browser);
    await refusals(server.web);
    await otherSite(browser, server.web);
    await page.goto('http://127.0.0.1:' + readonly.web + '/');
    await page.getByRole('button', { name: 'default', exact: true }).click();
    await until(() => page.locator('#readonly').isVisible(), true);
    assert.ok(await page.locator('#steer').isHidden(), 'a read-only page has no controls');
    assert.deepStrictEqual(complaints, [], 'errors reported by the browser');
    console.log('the page works');
  } finally {
    await browser.close();
    [server, readonly].forEach(({ child }) => { child.removeAllListeners('exit'); child.kill(); });
  }
}

main().catch((error) => { console.error(error); process.exit(1); });
