// The targets of a campaign's template, as the service computes them from a link's parameters.

/** A value as it is encoded in a target: all but letters, digits and -._~. */
const encoded = (value) => encodeURIComponent(value).replace(/[!'()*]/g,
  (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);

/** The target that a template results in; a placeholder without a value stays as it is. */
export function filled(template, parameters, code) {
  return template.replace(/\{(\w+)\}/g, (place, name) => {
    if (name === 'code') return code ?? place;
    return Object.hasOwn(parameters, name) && parameters[name] !== '' ? encoded(parameters[name]) : place;
  });
}
