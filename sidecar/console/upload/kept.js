// What this browser remembers of uploads: enough to go on with one, and to know that there was one.

const NAME = 'shortlink-uploads';

/** How many are remembered. */
const MOST = 20;

/** For how long the service knows what was made of a file's rows, less an hour to send them again. */
const KNOWN_FOR = 23 * 3_600_000;

function all() {
  try {
    const kept = JSON.parse(localStorage.getItem(NAME) ?? '[]');
    return Array.isArray(kept) ? kept : [];
  } catch {
    return [];
  }
}

/** The last upload of a file to a place. */
export const of = (file) => all().find((it) => it.file === file) ?? null;

/** The uploads to a place, the latest first. */
export const to = (place) => all().filter((it) => it.place === place);

/** Whether the service still knows which rows it has made links of. */
export const isKnown = ({ at }) => Date.now() - Date.parse(at) < KNOWN_FOR;

/** Remembers an upload in place of an earlier one of the same file. */
export function keep(upload) {
  try {
    const others = all().filter((it) => it.file !== upload.file);
    localStorage.setItem(NAME, JSON.stringify([upload, ...others].slice(0, MOST)));
  } catch { /* The names of requests follow from files, so that nothing is made twice without it. */ }
}
