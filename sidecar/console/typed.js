// The fields that a user has filled in on a page, so that they are filled in again after the page was drawn anew.

/** The place in the tab for what was typed before the browser left for the sign-in provider. */
const KEPT = 'shortlink-typed';

/** The fields that can be filled in again. Those without an id belong to a part that has one, and is read as a whole. */
const FIELDS = 'input[id], select[id], textarea[id], [role=group][id]';

/** The time in milliseconds for which fields are awaited that come late, such as those of a campaign. */
const PATIENCE = 3000;

/** The fields that were changed. */
const touched = new WeakSet();

/** The part of a form that reads and fills in a field: the field itself, or the part that it is in. */
const whole = (field) => field.closest?.('[role=group][id]') ?? field;

for (const type of ['input', 'change']) {
  document.addEventListener(type, ({ target }) => touched.add(whole(target)), true);
}

/** The changed fields of a page in their order, as plain data but for files; the charts have their choices in the address. */
export function typedIn(main) {
  const fields = [...main.querySelectorAll(FIELDS)].filter((field) => touched.has(field) && whole(field) === field
    && field.type !== 'password' && !field.closest('.choices'));
  return fields.map((field) => ({
    id: field.id,
    tag: field.tagName,
    ...(field.type === 'checkbox' ? { checked: field.checked }
      : field.type === 'file' ? { files: field.files } : { value: field.value }),
  }));
}

/** Fills in fields again, each after those before it, which can have fields of their own. */
export async function fillIn(main, typed, left) {
  const until = Date.now() + PATIENCE;
  for (const { id, tag, ...values } of typed) {
    const find = () => {
      const field = main.querySelector(`#${CSS.escape(id)}`);
      const has = ({ options }) => [...options].some(({ value }) => value === values.value);
      return field?.tagName === tag && (tag !== 'SELECT' || has(field)) ? field : null;
    };
    while (!find() && Date.now() < until && !left.aborted) {
      await new Promise((resolve) => { setTimeout(resolve, 50); });
    }
    const field = find();
    if (!field || left.aborted) continue;
    Object.assign(field, values);
    for (let fold = field.closest('details'); fold; fold = fold.parentElement.closest('details')) fold.open = true;
    for (const type of ['input', 'change']) field.dispatchEvent(new Event(type, { bubbles: true }));
  }
}

/** Keeps what was typed on a page while the browser is elsewhere; files can't be kept. */
export function keep(page) {
  try {
    const typed = page.typed.filter(({ files }) => !files);
    sessionStorage.setItem(KEPT, JSON.stringify({ ...page, typed }));
  } catch { /* It is not kept then. */ }
}

/** Returns what was kept, once; null without anything. */
export function taken() {
  try {
    const page = JSON.parse(sessionStorage.getItem(KEPT));
    sessionStorage.removeItem(KEPT);
    return page;
  } catch {
    return null;
  }
}
