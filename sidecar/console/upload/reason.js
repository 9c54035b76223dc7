// Why the service has refused a row of a file.

/** A problem as one line, with the names of the file's columns in place of members. */
export function reasonOf(problem, columns) {
  const errors = (problem?.errors ?? []).map(({ pointer, detail }) => {
    const steps = pointer.split('/').slice(1);
    const known = [steps.slice(0, 2).join('.'), steps[0]].map((member) => columns.get(member)).find(Boolean);
    const name = known ?? steps.join('.');
    return name ? `${name} ${detail}` : detail;
  });
  return errors.length > 0 ? errors.join('; ') : problem?.detail ?? problem?.title ?? '';
}
