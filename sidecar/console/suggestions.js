// Suggestions for fields: names in place of ids, where the API key may know them.

import { get, part } from './api.js';

/** The number of campaigns and API keys that are suggested: the latest. */
const MOST = 200;

/** Suggestions from objects with an id and a name. An id follows a name that several have. */
function named(all) {
  const once = new Map();
  for (const { name } of all) once.set(name, (once.get(name) ?? 0) + 1);
  const pairs = all.map(({ id, name }) => [once.get(name) > 1 ? `${name} (${id})` : name, id]);
  const [ids, names] = [new Map(pairs), new Map(pairs.map(([name, id]) => [id, name]))];
  return { all, names: [...ids.keys()], idOf: (name) => ids.get(name), nameOf: (id) => names.get(id) };
}

/** Suggestions of a listing; without any where the key may not read it, or it fails: an id can be typed then. */
async function listed(isOpen, path, member) {
  const answer = isOpen ? await part(() => get(`${path}?limit=${MOST}`)) : {};
  return named(answer[member] ?? []);
}

/** The latest campaigns. */
export const campaigns = (may) => listed(may('campaigns:read'), '/v1/campaigns', 'campaigns');

/** The latest API keys. */
export const keys = (may) => listed(may('keys:admin'), '/v1/keys', 'keys');

/** The tags of some links, and those that campaigns give to new links. */
export function tags(links, { all }) {
  const found = [...links.flatMap((link) => link.tags), ...all.flatMap(({ defaults }) => defaults?.tags ?? [])];
  return { names: [...new Set(found)].sort(), idOf: () => undefined, nameOf: () => undefined };
}
