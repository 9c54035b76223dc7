import { type Answer, UNCERTAIN } from './connection.js';
import { ConnectionFailed, ProblemError } from './errors.js';
import type { Problem } from './generated/schema.js';

// Rows and bytes of one request of a batch. The service processes up to four chunks of a thousand rows at once.
const [MOST_ROWS, MOST_BYTES] = [5000, 8 << 20];
// Requests of a batch that are under way at once: one is answered while the next one is sent.
const AT_ONCE = 2;

/** Rows that one request sends. */
export interface Part {
  /** The number of the first row. */
  first: number;
  lines: string[];
  hasDedupe: boolean;
}

interface Result {
  index?: number;
  status: number;
  problem?: Problem;
}

/** The results of a part, which is repeated if some are missing or the service failed for some. */
export async function resultsOf(answer: Answer, part: Part, isLast: boolean): Promise<Result[]> {
  const results: Result[] = [];
  for await (const line of answer.lines()) {
    const result = JSON.parse(line) as Result;
    if (result.index === undefined) break;
    if (UNCERTAIN.has(result.status) && !isLast) {
      throw new ProblemError(result.status, result.problem ?? {}, answer.headers);
    }
    result.index += part.first;
    results.push(result);
  }
  const missing = part.lines.length - results.length;
  if (missing > 0) throw new ConnectionFailed(`${missing} rows have no result`);
  return results;
}

/** Divides rows into the parts that requests send. A repetition divides them in the same way. */
export async function* partsOf(
  rows: Iterable<unknown> | AsyncIterable<unknown>,
  isKeyed: boolean,
): AsyncGenerator<Part, void> {
  let part: Part = { first: 0, lines: [], hasDedupe: false };
  let size = 0;
  for await (const row of rows) {
    const line = `${JSON.stringify(row)}\n`;
    // A character has at most three bytes.
    const bytes = line.length * 3;
    const hasDedupe = isKeyed && Boolean((row as { dedupe?: unknown }).dedupe);
    const count = part.lines.length;
    if (count && (count === MOST_ROWS || size + bytes > MOST_BYTES || hasDedupe !== part.hasDedupe)) {
      yield part;
      part = { first: part.first + count, lines: [], hasDedupe };
      size = 0;
    }
    part.hasDedupe = hasDedupe;
    part.lines.push(line);
    size += bytes;
  }
  if (part.lines.length) yield part;
}

/** Sends parts, some at once, and yields their results in order. An error comes behind the results before it. */
export async function* inTurn<R>(
  parts: AsyncGenerator<Part, void>,
  send: (part: Part, signal: AbortSignal) => Promise<R[]>,
): AsyncGenerator<R, void> {
  const stopped = new AbortController();
  const underWay: Promise<R[]>[] = [];
  let next: Promise<Part | undefined> | undefined;
  let isOver = false;
  // An error is thrown when its turn has come, not when it happens.
  const held = <T>(step: Promise<T>): Promise<T> => {
    step.catch(() => {});
    return step;
  };
  try {
    while (!isOver || underWay.length) {
      if (!isOver && underWay.length < AT_ONCE) {
        next ??= held(parts.next().then((it) => it.value ?? undefined));
      }
      const oldest = underWay[0];
      // Rows can be slow to come: results do not wait for them.
      const turn = await Promise.race([
        ...(next
          ? [
              next.then(
                () => 'rows' as const,
                () => 'failed' as const,
              ),
            ]
          : []),
        ...(oldest
          ? [
              oldest.then(
                () => 'results' as const,
                () => 'results' as const,
              ),
            ]
          : []),
      ]);
      if (turn === 'rows') {
        const part = await next;
        next = undefined;
        if (part) underWay.push(held(send(part, stopped.signal)));
        else isOver = true;
      } else if (turn === 'failed' && oldest) {
        yield* await oldest;
        underWay.shift();
      } else if (turn === 'failed') {
        await next;
      } else {
        yield* (await oldest) ?? [];
        underWay.shift();
      }
    }
  } finally {
    stopped.abort();
    parts.return().catch(() => {});
  }
}
