// A list of parts of a form, each with fields of its own: they are added, moved, removed, and read together.

import { h, say } from './dom.js';
import { zoned } from './format.js';
import { has, t } from './i18n.js';

let numbers = 0;

/** A field of a part: the element with its label, and its value. `texts` is the prefix of the labels' names. */
export function fieldOf(texts, id, member, attributes, value = '') {
  const made = h('input', {
    id: `${id}-${member}`, 'data-member': member, type: 'text', autocomplete: 'off', autocapitalize: 'none',
    spellcheck: 'false', ...attributes,
  });
  made.value = value;
  const label = h('label', { for: made.id }, t(`${texts}.${member}`), made.type === 'datetime-local' && zoned());
  return { made, shown: h('div', {}, label, made) };
}

/**
 * Makes the maker of a form's field. `row` returns the elements of a value and a function that reads it; `one` is the name
 * of a part, `acts` are its buttons, and `blank` is a new value.
 */
export const listed = ({ texts, one, acts, row, blank }) => (id, initial) => {
  let rows = [];
  const part = (value) => {
    const { shown: fields, read } = row(value, `r-${numbers += 1}`);
    const buttons = acts.map((name) =>
      h('button', { type: 'button', 'data-act': name, click: () => act(made, name) }, t(`rules.${name}`)));
    const element = h('fieldset', { class: 'rule' }, h('legend', {}, ''), fields,
      h('div', { class: 'row' }, buttons));
    const made = { element, read, buttons };
    return made;
  };
  const nameOf = (place) => t(`${texts}.${one}`, { number: place + 1 });
  const shown = h('div', { class: 'fields' });
  const add = h('button', { type: 'button', 'data-act': 'add', click: () => {
    rows.push(part(blank));
    draw();
    rows.at(-1).element.querySelector('input').focus();
  } }, t(`${texts}.add`));
  const made = h('div', {
    id, role: 'group', tabindex: '-1', 'aria-labelledby': `l-${id}`, class: 'fields',
  }, h('p', { class: 'hint' }, t(`hint.${texts}`)), shown, add);
  const draw = () => {
    rows.forEach(({ element, buttons }, place) => {
      element.querySelector('legend').textContent = nameOf(place);
      element.dataset[one] = place;
      for (const button of buttons) {
        button.setAttribute('aria-label', `${button.textContent}: ${nameOf(place)}`);
        const last = { up: 0, down: rows.length - 1 }[button.dataset.act];
        button.disabled = place === last;
      }
    });
    shown.replaceChildren(...rows.map(({ element }) => element));
    made.dispatchEvent(new Event('input', { bubbles: true }));
  };
  const act = (rule, name) => {
    const place = rows.indexOf(rule);
    rows.splice(place, 1);
    if (name !== 'remove') rows.splice(place + (name === 'up' ? -1 : 1), 0, rule);
    draw();
    if (name === 'remove') {
      (rows[Math.min(place, rows.length - 1)]?.element.querySelector('input') ?? add).focus();
      say(t('rows.removed', { name: nameOf(place) }));
      return;
    }
    const button = rule.buttons.find((it) => it.dataset.act === name);
    (button.disabled ? rule.buttons.find((it) => !it.disabled && it.dataset.act !== 'remove') : button).focus();
    say(t('rows.moved', { name: nameOf(rows.indexOf(rule)) }));
  };
  Object.defineProperty(made, 'value', {
    get: () => JSON.stringify(rows.map(({ read }) => read())),
    set: (text) => {
      rows = JSON.parse(text).map(part);
      draw();
    },
  });
  made.value = JSON.stringify(initial ?? []);
  /** Shows a fault at its part: `place` is the rest of its pointer, such as 2.longUrl. */
  made.refuse = (place, detail) => {
    const [number, member] = place.split('.');
    const rule = rows[number]?.element;
    if (!rule) return false;
    const at = (member && rule.querySelector(`[data-member=${member}]`)) ?? rule.querySelector('legend');
    const wrong = `${id}-w-${number}-${member ?? ''}`;
    if (document.getElementById(wrong)) return true;
    at.closest('details')?.setAttribute('open', '');
    at.after(h('p', { class: 'wrong', id: wrong }, `${member && has(`${texts}.${member}`) ? t(`${texts}.${member}`)
      : rule.querySelector('legend').textContent}: ${detail}`));
    at.setAttribute('aria-describedby', wrong);
    if (at.tagName === 'INPUT') at.setAttribute('aria-invalid', 'true');
    return true;
  };
  made.forgive = () => {
    for (const wrong of made.querySelectorAll('.wrong')) {
      const at = made.querySelector(`[aria-describedby="${wrong.id}"]`);
      at?.removeAttribute('aria-describedby');
      at?.removeAttribute('aria-invalid');
      wrong.remove();
    }
  };
  made.focus = () => (made.querySelector('[aria-invalid], [role=group][aria-describedby]')
    ?? made.querySelector('.wrong')?.closest('fieldset').querySelector('input') ?? add).focus();
  return made;
};
