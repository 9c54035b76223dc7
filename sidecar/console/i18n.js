// The language of the console: that of the browser, until another one is chosen.

const LANGUAGES = { en: 'English', zh: '中文' };
const KEPT = 'shortlink-language';

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

/** A text with its placeholders filled in. */
export function t(name, values = {}) {
  const text = texts[name] ?? name;
  return text.replace(/\{(\w+)\}/g, (place, value) => values[value] ?? place);
}

/** True if there is such a text. */
export const has = (name) => name in texts;
