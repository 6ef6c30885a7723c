// Shared helpers of the Node scripts in this directory: the server's address, and checks that are counted.
'use strict';

const assert = require('assert');

const host = process.argv[2];
const port = Number(process.argv[3]);

let count = 0;

function ok(condition, what) {
  count++;
  assert.ok(condition, what);
}

function same(got, wanted, what) {
  count++;
  assert.deepStrictEqual(got, wanted, `${what}: got ${JSON.stringify(got)}, wanted ${JSON.stringify(wanted)}`);
}

// Compares bodies. If they differ, prints only their lengths, because bodies can be long.
function sameBytes(got, wanted, what) {
  count++;
  assert.ok(Buffer.isBuffer(got), `${what}: not a Buffer`);
  assert.ok(got.equals(wanted), `${what}: ${got.length} bytes differ from ${wanted.length} bytes`);
}

// Checks that the promise is rejected with an error that contains the word.
async function fails(word, promise, what) {
  count++;
  let got;
  try {
    got = await promise;
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    assert.ok(text.includes(word), `${what}: wanted ${word}, got ${text}`);
    return;
  }
  assert.fail(`${what}: wanted ${word}, got ${JSON.stringify(got)}`);
}

// Awaits call(). Checks that its duration in seconds is between the limits.
async function within(low, high, call, what) {
  count++;
  const start = process.hrtime.bigint();
  const result = await call();
  const seconds = Number(process.hrtime.bigint() - start) / 1e9;
  assert.ok(low <= seconds && seconds <= high, `${what}: took ${seconds} s, wanted ${low} to ${high} s`);
  return result;
}

const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

// Runs all steps in order, each with its own tube.
async function run(steps) {
  for (const step of steps) {
    try {
      await step('compat-' + step.name);
    } catch (error) {
      console.error(error);
      console.log(`${step.name}: ${error && error.message}`);
      process.exit(1);
    }
  }
  console.log(`${count} checks`);
  process.exit(0);
}

// Returns the statistics of a tube that beanstalkd also has. The server must send these statistics first.
function ofTube(stats) {
  return Object.fromEntries(Object.entries(stats).slice(0, 14));
}

module.exports = { host, port, ok, same, sameBytes, fails, within, sleep, run, ofTube };
