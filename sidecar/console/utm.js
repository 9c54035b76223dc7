// The UTM parameters of a new link, and templates of them, which are stored in the browser.

import { h, say } from './dom.js';
import { t } from './i18n.js';

const MEMBERS = ['source', 'medium', 'campaign', 'term', 'content'];
const STORED = 'shortlink-utm';

/** The most templates that are stored. */
const MOST = 20;

/** The part of a form with UTM parameters. */
export const utmOf = () => [t('utm'), MEMBERS.map((member) => ({
  name: `utm.${member}`, kind: 'text', placeholder: t(`utm.such.${member}`),
}))];

function stored() {
  try {
    const found = JSON.parse(localStorage.getItem(STORED) ?? '[]');
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}

function store(all) {
  try {
    localStorage.setItem(STORED, JSON.stringify(all.slice(0, MOST)));
  } catch { /* They are not stored then. */ }
}

/** The name of a template: its values. */
const nameOf = (template) => MEMBERS.map((member) => template[member]).filter(Boolean).join(' · ');

/** Adds templates to the part of a form. */
export function addTemplates(form) {
  const fields = MEMBERS.map((member) => [member, form.querySelector(`[name="utm.${member}"]`)]);
  const place = h('div', { 'data-templates': '' });
  const draw = () => {
    const all = stored();
    const chosen = h('select', { id: 'utm-template', change: () => {
      const template = all[Number(chosen.value)];
      if (!template) return;
      for (const [member, field] of fields) field.value = template[member] ?? '';
      remove.hidden = false;
      form.dispatchEvent(new Event('input'));
    } }, h('option', { value: '' }, t('utm.choose')), all.map((template, at) => h('option', { value: at }, nameOf(template))));
    const remove = h('button', { type: 'button', hidden: true, click: () => {
      store(all.filter((_, at) => at !== Number(chosen.value)));
      draw();
      say(t('utm.removed'));
    } }, t('utm.remove'));
    place.hidden = all.length === 0;
    place.replaceChildren(...(all.length > 0 ? [
      h('label', { for: 'utm-template' }, t('utm.template')), h('div', { class: 'row' }, chosen, remove),
    ] : []));
  };
  const save = h('button', { type: 'button', 'data-save-template': '', click: () => {
    const given = Object.fromEntries(fields.map(([member, field]) => [member, field.value.trim()]).filter(([, text]) => text));
    if (!nameOf(given)) return;
    store([given, ...stored().filter((it) => nameOf(it) !== nameOf(given))]);
    draw();
    say(t('utm.saved'));
  } }, t('utm.save'));
  draw();
  const [[, first]] = fields;
  first.closest('.fields').prepend(place);
  first.closest('.fields').append(h('div', { class: 'row' }, save));
}
