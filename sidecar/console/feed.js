// The live feed of visits, while its page is shown. A lost connection is opened again, and continues behind the last
// event. EventSource can't do that: it gives up after an error, as while the service restarts, and does not expose
// the last event.

import { Failure } from './api.js';

const ADDRESS = '/v1/visits/live';

/** The shortest pause before a reconnect in milliseconds; it doubles up to the longest. */
const SHORTEST = 1000;
const LONGEST = 15_000;

/** The silence after which the connection counts as lost; there is a comment every 15 seconds. */
const SILENCE = 40_000;

/** The statuses after which a retry is useless. */
const FINAL = [401, 403, 404];

/**
 * Listens until `left` is aborted. `told` receives each event's name and data; `became` receives the connection's
 * state: `connecting`, `live`, `waiting` (with the failure, if there was an answer) or `over`.
 */
export async function listen({ query, left, told, became }) {
  let last = '';
  let pause = SHORTEST;
  while (!left.aborted) {
    became('connecting');
    let failure;
    try {
      const end = await once({ query, left, last, told: (name, data, id) => {
        if (id) last = id;
        if (name === 'begun' || name === 'resumed') became('live');
        pause = SHORTEST;
        told(name, data);
      } });
      if (end === 'key') failure = new Failure(401);
    } catch (error) {
      failure = error instanceof Failure ? error : null;
      // An id that the service does not know any more must not block the feed.
      if (failure?.status === 400) last = '';
    }
    if (left.aborted) return;
    if (FINAL.includes(failure?.status)) {
      became('over', failure);
      return;
    }
    became('waiting', failure);
    await rest(pause, left);
    pause = Math.min(pause * 2, LONGEST);
  }
}

/** One connection, to its end; returns the reason for the end, if there was one. */
async function once({ query, left, last, told }) {
  const silent = new AbortController();
  let timer;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silent.abort(), SILENCE);
  };
  heard();
  try {
    const answer = await fetch(`${ADDRESS}?${query}`, {
      headers: { Accept: 'text/event-stream', ...(last && { 'Last-Event-ID': last }) },
      cache: 'no-store', signal: AbortSignal.any([left, silent.signal]),
    });
    if (!answer.ok) {
      const problem = await answer.json().catch(() => null);
      throw new Failure(answer.status, problem, answer.headers.get('Retry-After'));
    }
    let end = null;
    const read = reader((name, data, id) => {
      if (name === 'end') end = data.reason;
      else told(name, data, id);
    });
    const stream = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await stream.read();
      if (done) return end;
      heard();
      read(value);
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Parses events from text that arrives in pieces. */
export function reader(told) {
  let text = '';
  return (piece) => {
    const blocks = (text + piece).split('\n\n');
    text = blocks.pop();
    for (const block of blocks) {
      const lines = block.split('\n').map((line) => /^(\w+): ?(.*)$/.exec(line)).filter(Boolean);
      const { event, data, id } = Object.fromEntries(lines.map(([, name, value]) => [name, value]));
      if (event && data) told(event, JSON.parse(data), id);
    }
  };
}

/** Waits, but ends early when the page is left. */
function rest(time, left) {
  return new Promise((resolve) => {
    const over = () => {
      clearTimeout(timer);
      left.removeEventListener('abort', over);
      resolve();
    };
    const timer = setTimeout(over, time);
    left.addEventListener('abort', over);
  });
}
