//! Templates of UTM parameters on the command line.

use super::*;

#[test]
fn templates_are_set_listed_and_deleted() {
    let stack = Stack::start();
    let user = User::new(&stack);
    let name = "Spring & more/ü";
    let set = |utm: &[&str]| {
        let mut arguments = vec!["utm-templates", "set", name];
        arguments.extend(utm.iter().flat_map(|it| ["--utm", *it]));
        user.ok(&arguments)
    };
    set(&["source=newsletter"]);
    let shown = set(&["source=sms", "medium=sms=1"]);
    assert!(shown.contains("medium=sms=1, source=sms"), "{shown}");
    let listed = user.ok(&["utm-templates", "list"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.contains(name), "{listed}");
    let refused = user.run(&["utm-templates", "set", "x", "--utm", "sauce=sms"]);
    assert_eq!(refused.code, Some(1), "{}", refused.error);
    assert!(refused.error.contains("sauce"), "{}", refused.error);
    let asked = user.run(&["utm-templates", "delete", name]);
    assert_eq!(asked.code, Some(2), "{}", asked.error);
    user.ok(&["utm-templates", "delete", name, "--yes"]);
    let gone = user.run(&["utm-templates", "delete", name, "--yes"]);
    assert_eq!(gone.code, Some(1), "{}", gone.error);
}
