// The UTM parameters of a new link, and templates of them, which all users of the service share.

import { ask, get, notice, part } from './api.js';
import { h, say } from './dom.js';
import { t } from './i18n.js';

const MEMBERS = ['source', 'medium', 'campaign', 'term', 'content'];

/** The place in the browser where earlier versions of the console have stored templates. */
const BEFORE = 'shortlink-utm';

/** The most characters of a name. */
const LONGEST = 64;

/** The part of a form with UTM parameters. */
export const utmOf = () => [t('utm'), MEMBERS.map((member) => ({
  name: `utm.${member}`, kind: 'text', placeholder: t(`utm.such.${member}`),
}))];

/** The name of a template without one: its values. */
const nameOf = (utm) => [...MEMBERS.map((member) => utm[member]).filter(Boolean).join(' · ')].slice(0, LONGEST).join('');

const store = (name, utm) => ask('PUT', '/v1/utm-templates', { name, utm });

/** Stores the templates of this browser for all users. */
async function shareThoseBefore() {
  let before = [];
  try {
    before = JSON.parse(localStorage.getItem(BEFORE) ?? '[]');
  } catch { /* There are none then. */ }
  if (!Array.isArray(before) || before.length === 0) return;
  for (const utm of before) await store(nameOf(utm), utm);
  localStorage.removeItem(BEFORE);
}

/** Adds templates to the part of a form, unless the API key does not reach them. */
export async function addTemplates(form) {
  const fields = MEMBERS.map((member) => [member, form.querySelector(`[name="utm.${member}"]`)]);
  const place = h('div', { 'data-templates': '' });
  const failed = h('div', {});
  const draw = ({ templates }) => {
    const chosen = h('select', { id: 'utm-template', change: () => {
      const template = templates[Number(chosen.value)];
      remove.hidden = !template || chosen.value === '';
      if (remove.hidden) return;
      for (const [member, field] of fields) field.value = template.utm[member] ?? '';
      name.value = template.name;
      form.dispatchEvent(new Event('input'));
    } }, h('option', { value: '' }, t('utm.choose')),
    templates.map((template, at) => h('option', { value: at }, template.name)));
    const remove = h('button', { type: 'button', hidden: true, click: () => change(async () => {
      await ask('DELETE', `/v1/utm-templates/${encodeURIComponent(templates[Number(chosen.value)].name)}`);
      return t('utm.removed');
    }) }, t('utm.remove'));
    place.replaceChildren(...(templates.length > 0 ? [
      h('label', { for: 'utm-template' }, t('utm.template')), h('div', { class: 'row' }, chosen, remove),
    ] : []));
  };
  /** Does something with templates, and shows all of them after it. */
  const change = async (call) => {
    const done = await part(async () => {
      const said = await call();
      return { said, ...await get('/v1/utm-templates') };
    });
    failed.replaceChildren(...(done.failure ? [notice(done.failure)] : []));
    if (done.failure) return;
    draw(done);
    say(done.said);
  };
  const name = h('input', { id: 'utm-name', type: 'text', maxlength: LONGEST, placeholder: t('utm.name.hint') });
  const save = h('button', { type: 'button', 'data-save-template': '', click: () => {
    const utm = Object.fromEntries(fields.map(([member, field]) => [member, field.value.trim()]).filter(([, text]) => text));
    if (!nameOf(utm)) return;
    change(async () => {
      await shareThoseBefore();
      await store(name.value.trim() || nameOf(utm), utm);
      return t('utm.saved');
    });
  } }, t('utm.save'));
  const all = await part(() => get('/v1/utm-templates'));
  if (all.failure) return;
  draw(all);
  const around = fields[0][1].closest('.fields');
  around.prepend(place);
  around.append(h('div', {}, h('label', { for: 'utm-name' }, t('utm.name')), h('div', { class: 'row' }, name, save), failed));
}
