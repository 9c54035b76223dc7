// Where a campaign's template leads, as the service makes it of a link's values.

/** A value as it stands in a target: all but letters, digits and -._~ is encoded. */
const encoded = (value) => encodeURIComponent(value).replace(/[!'()*]/g,
  (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);

/** The target that a template makes; a place without a value is left as it stands. */
export function filled(template, parameters, code) {
  return template.replace(/\{(\w+)\}/g, (place, name) => {
    if (name === 'code') return code ?? place;
    return Object.hasOwn(parameters, name) && parameters[name] !== '' ? encoded(parameters[name]) : place;
  });
}
