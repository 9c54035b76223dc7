// The language of the console: that of the browser, until another one is chosen.

const LANGUAGES = { en: 'English', zh: '中文' };
const KEPT = 'shortlink-language';

/** A placeholder in a text. */
const PLACE = /\{(\w+)\}/g;

let texts = {};
let language = 'en';

/** The languages, with their own names. */
export const languages = Object.entries(LANGUAGES);

/** The current language. */
export const spoken = () => language;

/** Loads the chosen language, or else the first of the browser's that is available. */
export async function begin() {
  const wanted = [kept(), ...navigator.languages].map((name) => name?.slice(0, 2).toLowerCase());
  await speak(wanted.find((name) => name in LANGUAGES) ?? 'en');
}

/** Switches to a language, and remembers it. */
export async function choose(name) {
  try {
    localStorage.setItem(KEPT, name);
  } catch { /* It is not remembered then. */ }
  await speak(name);
}

async function speak(name) {
  const answer = await fetch(new URL(`texts/${name}.json`, import.meta.url));
  texts = await answer.json();
  language = name;
  document.documentElement.lang = name === 'zh' ? 'zh-CN' : name;
}

function kept() {
  try {
    return localStorage.getItem(KEPT);
  } catch {
    return null;
  }
}

/** The locale of numbers and moments: the browser's variant of the chosen language. */
export const locale = () =>
  navigator.languages.find((name) => name.slice(0, 2).toLowerCase() === language) ?? language;

/** A number with its digits in groups. */
export const digits = (number) => new Intl.NumberFormat(locale()).format(number);

/**
 * A text with its placeholders filled in; numbers get groups of digits. A text with plural forms is an object of them, and the
 * first of its placeholders decides which one is used.
 */
export function t(name, values = {}) {
  const text = formOf(texts[name] ?? name, values);
  const shown = (value) => (typeof value === 'number' ? digits(value) : value);
  return text.replace(PLACE, (place, value) => shown(values[value]) ?? place);
}

function formOf(text, values) {
  if (typeof text === 'string') return text;
  const [[, first]] = text.other.matchAll(PLACE);
  return text[new Intl.PluralRules(language).select(values[first])] ?? text.other;
}

/** A fault of a field, as the API words it, in this language if it is a frequent one. */
export const detailOf = (text) => texts[`detail.${text}`] ?? text;

/** True if there is such a text. */
export const has = (name) => name in texts;
