// Forms: fields that become members of JSON, with their errors beside them.

import { inWords, notice } from './api.js';
import { h } from './dom.js';
import { fromField, toField, zoned } from './format.js';
import { t } from './i18n.js';

/** The fields by kind of member: how each is shown and read. */
const KINDS = {
  text: { type: 'text' },
  // Not "url", whose error messages come from the browser in its own language.
  url: { type: 'text', inputmode: 'url', ready: completed },
  long: { element: 'textarea' },
  number: { type: 'number', min: '1', step: '1', read: (value) => (value ? Number(value) : null) },
  moment: { type: 'datetime-local', show: toField, read: fromField },
  tags: {
    type: 'text',
    show: (tags) => (tags ?? []).join(', '),
    read: (value) => value.split(/[,，]/).map((tag) => tag.trim()).filter(Boolean),
  },
  // A text that may be empty and is sent nevertheless.
  value: { type: 'text', read: (text) => text },
  // A number, or the least and the most.
  length: {
    type: 'text',
    inputmode: 'numeric',
    show: (length) => (length?.min ? `${length.min}-${length.max}` : length),
    read: (value) => {
      const [, min, max] = /^(\d+)\s*[-–]\s*(\d+)$/.exec(value) ?? [];
      if (min) return { min: Number(min), max: Number(max) };
      return value ? Number(value) || value : null;
    },
  },
  choice: { element: 'select', read: (value) => (/^\d+$/.test(value) ? Number(value) : value || null) },
  truth: { type: 'checkbox', show: (truth) => String(Boolean(truth)), read: (value) => value === 'true' },
  // Its fields are made by the page.
  rules: { read: JSON.parse },
  several: {
    element: 'div',
    show: (all) => (all ?? []).join(' '),
    read: (value) => value.split(' ').filter(Boolean),
  },
};

/**
 * Completes an address without a scheme, as users type it, when its field is left. The hint stands below it while they type:
 * a line that comes later would move the button that is being pressed.
 */
function completed(made) {
  const said = h('p', { class: 'hint', role: 'status' });
  const isShort = () => /^[^\s/:?#@{}]+\.[^\s/:?#@{}]{2,}(:\d+)?([/?#]|$)/.test(made.value.trim());
  made.addEventListener('input', () => {
    said.textContent = isShort() ? t('url.completed') : '';
    if (!said.isConnected) made.after(said);
  });
  made.addEventListener('change', () => {
    if (!isShort()) return;
    made.value = `https://${made.value.trim()}`;
    made.form.dispatchEvent(new Event('input'));
  });
}

/** The member of an object by its path, a name with dots. */
const inside = (object, name) => name.split('.').reduce((found, step) => found?.[step], object);

/**
 * A form. `link` has the initial values, or a field its own; `call` receives the members that differ from them, with those of one object
 * together. `changed` is called with the fields at every change. `parts` are further fields, each with its title.
 */
export function form({ fields, more = [], parts = [], link = {}, send, call, cancel, changed = () => {} }) {
  const folded = [[t('more'), more], ...parts].filter(([, ofPart]) => ofPart.length > 0);
  const all = [...fields, ...folded.flatMap(([, ofPart]) => ofPart)];
  const inputs = new Map(all.map((field) => [field.name, input(field, inside(link, field.name) ?? field.initial)]));
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
  changed(inputs);
  return h('form', { class: 'fields', submit, novalidate: true, input: () => changed(inputs) },
    fields.map(row),
    folded.map(([title, ofPart]) => h('details', {}, h('summary', {}, title),
      h('div', { class: 'fields' }, ofPart.map(row)))),
    said,
    h('div', { class: 'row' }, button, cancel));
}

/** The id of a field's element; a dot would be a class in a selector. */
const idOf = (name) => `f-${name.replaceAll('.', '-')}`;

/** The id of the element with a field's error. */
const wrongOf = (made) => made.id.replace('f-', 'w-');

function input({ name, kind, required, placeholder, hint, make, choices = [] }, value) {
  if (make) return make(idOf(name), value);
  const { element = 'input', type, inputmode, min, step, show, ready } = KINDS[kind];
  const options = kind === 'choice' && choices.map(([option, text]) => h('option', { value: option }, text));
  const made = h(element, {
    id: idOf(name), name, type, inputmode, min, step, placeholder, 'aria-required': required && 'true',
    autocomplete: 'off', autocapitalize: 'none', spellcheck: kind === 'long' ? null : 'false',
    'aria-describedby': hint && `h-${name}`,
  }, options);
  if (kind === 'truth') boxed(made);
  if (kind === 'several') grouped(made, choices);
  made.value = (show ? show(value) : value) ?? '';
  ready?.(made);
  return made;
}

/** Makes a checkbox readable and settable like other fields. */
function boxed(made) {
  Object.defineProperty(made, 'value', {
    get: () => String(made.checked), set: (value) => { made.checked = value === 'true'; },
  });
}

/** A checkbox for each choice; they are read and set together. */
function grouped(made, choices) {
  const boxes = choices.map(([value]) =>
    h('input', { type: 'checkbox', id: `${made.id}-${value}`, 'data-value': value }));
  const ofFields = ['name', 'aria-required', 'autocomplete', 'autocapitalize', 'spellcheck'];
  for (const attribute of ofFields) made.removeAttribute(attribute);
  made.setAttribute('role', 'group');
  made.setAttribute('tabindex', '-1');
  made.setAttribute('aria-labelledby', `l-${made.id}`);
  made.append(...choices.map(([, text], place) => h('p', { class: 'check' },
    boxes[place], h('label', { for: boxes[place].id }, text))));
  Object.defineProperty(made, 'value', {
    get: () => boxes.filter((box) => box.checked).map((box) => box.dataset.value).join(' '),
    set: (value) => boxes.forEach((box) => { box.checked = value.split(' ').includes(box.dataset.value); }),
  });
}

/** A field with its label and hint. */
function labelled({ name, kind, label, required, hint }, made) {
  const text = [label ?? t(`field.${name}`), kind === 'moment' && zoned(),
    required && h('span', { class: 'faint' }, ` · ${t('required')}`)];
  const says = hint && h('p', { class: 'hint', id: `h-${name}` }, t(hint === true ? `hint.${name}` : hint));
  if (kind === 'truth') {
    return h('div', {}, h('p', { class: 'check' }, made, h('label', { for: made.id }, text)), says);
  }
  const named = made.getAttribute('role') === 'group'
    ? h('span', { class: 'label', id: `l-${made.id}` }, text) : h('label', { for: made.id }, text);
  return h('div', {}, named, made, says);
}

/**
 * The members whose fields have changed. An empty field removes its member. An object is sent whole, since the API
 * replaces it.
 */
function members(all, inputs, shown) {
  const outer = (name) => name.split('.')[0];
  const changed = new Set(all.filter(({ name, required }) =>
    inputs.get(name).value !== shown.get(name) || (required && !shown.get(name))).map(({ name }) => outer(name)));
  const said = {};
  for (const { name, kind, required } of all.filter((field) => changed.has(outer(field.name)))) {
    const text = inputs.get(name).value.trim();
    const value = KINDS[kind].read ? KINDS[kind].read(text) : (text || required ? text : null);
    const [object, member] = name.split('.');
    if (!member) said[name] = value;
    else {
      said[object] ??= null;
      const isSaid = kind === 'value' || (value !== null && value.length !== 0);
      if (isSaid) said[object] = { ...said[object], [member]: value };
    }
  }
  return said;
}

function clear(inputs) {
  for (const made of inputs.values()) {
    made.forgive?.();
    made.removeAttribute('aria-invalid');
    const wrong = document.getElementById(wrongOf(made));
    if (!wrong) continue;
    const described = made.getAttribute('aria-describedby').split(' ').filter((id) => id !== wrong.id);
    if (described.length > 0) made.setAttribute('aria-describedby', described.join(' '));
    else made.removeAttribute('aria-describedby');
    wrong.remove();
  }
}

/** Shows the faults of fields beside them, and all others above the button. */
function refuse(failure, inputs, said) {
  const fields = failure.fields ?? [];
  // A fault of a part, such as the second tag, is shown beside the whole field.
  const fieldOf = (name) => [...inputs.keys()].find((field) => name === field || name.startsWith(`${field}.`));
  const known = fields.map(([name, detail]) => [fieldOf(name), detail, name]).filter(([name]) => name);
  for (const [name, detail, whole] of known) {
    const made = inputs.get(name);
    const id = wrongOf(made);
    // A part with fields of its own shows the fault there.
    if (made.refuse?.(whole.slice(name.length + 1), detail)) {
      made.closest('details').setAttribute('open', '');
      continue;
    }
    if (made.getAttribute('role') !== 'group') made.setAttribute('aria-invalid', 'true');
    made.closest('details')?.setAttribute('open', '');
    if (!document.getElementById(id)) {
      const label = made.closest('.fields > div').querySelector('label, .label').firstChild.textContent;
      made.after(h('p', { class: 'wrong', id }, `${label}: ${detail}`));
      made.setAttribute('aria-describedby', `${id} ${made.getAttribute('aria-describedby') ?? ''}`.trim());
    }
  }
  if (known.length === 0 || known.length < fields.length) said.replaceChildren(notice(failure));
  else said.replaceChildren(h('div', { class: 'notice bad', role: 'alert', 'data-status': failure.status },
    inWords(failure)[0]));
  if (known.length > 0) inputs.get(known[0][0]).focus();
}
