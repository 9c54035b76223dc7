// Forms about links: fields that become members of JSON, and what is wrong with them beside them.

import { inWords, notice } from './api.js';
import { h } from './dom.js';
import { fromField, toField } from './format.js';
import { t } from './i18n.js';

/** How a member is shown in a field, by kind, and read from it. */
const KINDS = {
  text: { type: 'text' },
  // Not "url", whose message of what is wrong comes from the browser in its own language.
  url: { type: 'text', inputmode: 'url' },
  long: { element: 'textarea' },
  number: { type: 'number', min: '1', step: '1', read: (value) => (value ? Number(value) : null) },
  moment: { type: 'datetime-local', show: toField, read: fromField },
  tags: {
    type: 'text',
    show: (tags) => (tags ?? []).join(', '),
    read: (value) => value.split(/[,，]/).map((tag) => tag.trim()).filter(Boolean),
  },
};

/** A form. `link` is what the fields show first; `call` is given the members that differ from that. */
export function form({ fields, more = [], link = {}, send, call, cancel }) {
  const all = [...fields, ...more];
  const inputs = new Map(all.map((field) => [field.name, input(field, link[field.name])]));
  const shown = new Map(all.map((field) => [field.name, inputs.get(field.name).value]));
  const said = h('div', {});
  const button = h('button', { class: 'main' }, send);
  const submit = async (event) => {
    event.preventDefault();
    if (button.hasAttribute('aria-busy')) return;
    clear(inputs);
    said.replaceChildren();
    button.setAttribute('aria-busy', 'true');
    try {
      await call(members(all, inputs, shown));
    } catch (failure) {
      refuse(failure, inputs, said);
    } finally {
      button.removeAttribute('aria-busy');
    }
  };
  const row = (field) => labelled(field, inputs.get(field.name));
  return h('form', { class: 'fields', submit, novalidate: true },
    fields.map(row),
    more.length > 0 && h('details', {}, h('summary', {}, t('more')), h('div', { class: 'fields' }, more.map(row))),
    said,
    h('div', { class: 'row' }, button, cancel));
}

function input({ name, kind, required, placeholder, hint }, value) {
  const { element = 'input', type, inputmode, min, step, show } = KINDS[kind];
  const made = h(element, {
    id: `f-${name}`, name, type, inputmode, min, step, placeholder, 'aria-required': required && 'true',
    autocomplete: 'off', autocapitalize: 'none', spellcheck: kind === 'long' ? null : 'false',
    'aria-describedby': hint && `h-${name}`,
  });
  made.value = (show ? show(value) : value) ?? '';
  return made;
}

function labelled({ name, required, hint }, made) {
  return h('div', {},
    h('label', { for: made.id }, t(`field.${name}`),
      required && h('span', { class: 'faint' }, ` · ${t('required')}`)),
    made,
    hint && h('p', { class: 'hint', id: `h-${name}` }, t(`hint.${name}`)));
}

/** The members whose fields have changed. An empty field is a member that is taken away. */
function members(all, inputs, shown) {
  const changed = all.filter(({ name, required }) => required
    ? inputs.get(name).value !== shown.get(name) || !shown.get(name)
    : inputs.get(name).value !== shown.get(name));
  return Object.fromEntries(changed.map(({ name, kind, required }) => {
    const value = inputs.get(name).value.trim();
    const read = KINDS[kind].read ?? ((text) => (text || required ? text : null));
    return [name, read(value)];
  }));
}

function clear(inputs) {
  for (const made of inputs.values()) {
    made.removeAttribute('aria-invalid');
    const wrong = made.parentElement.querySelector('.wrong');
    if (!wrong) continue;
    const described = made.getAttribute('aria-describedby').split(' ').filter((id) => id !== wrong.id);
    if (described.length > 0) made.setAttribute('aria-describedby', described.join(' '));
    else made.removeAttribute('aria-describedby');
    wrong.remove();
  }
}

/** Shows what is wrong beside the fields it is about, and all else above the button. */
function refuse(failure, inputs, said) {
  const fields = failure.fields ?? [];
  const known = fields.filter(([name]) => inputs.has(name));
  for (const [name, detail] of known) {
    const made = inputs.get(name);
    const id = `w-${name}`;
    made.setAttribute('aria-invalid', 'true');
    made.closest('details')?.setAttribute('open', '');
    if (!made.parentElement.querySelector('.wrong')) {
      made.after(h('p', { class: 'wrong', id }, `${t(`field.${name}`)}: ${detail}`));
      made.setAttribute('aria-describedby', `${id} ${made.getAttribute('aria-describedby') ?? ''}`.trim());
    }
  }
  if (known.length === 0 || known.length < fields.length) said.replaceChildren(notice(failure));
  else said.replaceChildren(h('div', { class: 'notice bad', role: 'alert', 'data-status': failure.status },
    inWords(failure)[0]));
  if (known.length > 0) inputs.get(known[0][0]).focus();
}
