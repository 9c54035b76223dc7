// The uploads of this browser: enough to resume one, and to recognize a file that was sent before.

const NAME = 'shortlink-uploads';

/** The most uploads that are stored. */
const MOST = 20;

/** The time for which the service stores the outcome of a file's rows, less an hour to retry them. */
const KNOWN_FOR = 23 * 3_600_000;

function all() {
  try {
    const kept = JSON.parse(localStorage.getItem(NAME) ?? '[]');
    return Array.isArray(kept) ? kept : [];
  } catch {
    return [];
  }
}

/** The last upload of a file. */
export const of = (file) => all().find((it) => it.file === file) ?? null;

/** The last upload of the same bytes to a place, whatever its columns meant. */
export const like = (place, digest) => to(place).find((it) => it.digest === digest) ?? null;

/** The uploads to a place, the latest first. */
export const to = (place) => all().filter((it) => it.place === place);

/** True if the service still has the outcome of the upload's rows. */
export const isKnown = ({ at }) => Date.now() - Date.parse(at) < KNOWN_FOR;

/** Stores an upload in place of an earlier one of the same file. */
export function keep(upload) {
  try {
    const others = all().filter((it) => it.file !== upload.file);
    localStorage.setItem(NAME, JSON.stringify([upload, ...others].slice(0, MOST)));
  } catch { /* The names of requests follow from files, so that there are no duplicates without it. */ }
}
