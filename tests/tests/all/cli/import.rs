//! `shortlink links import`: cut off and repeated, and the report of rows that fail.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::Stdio;

use shortlink_tests::sql::Sql;
use shortlink_tests::stack::{Stack, text};
use shortlink_tests::wait::{SOON, eventually, until};

use super::{User, path, said, values};

const ROWS: usize = 10_000;

fn csv(rows: usize) -> String {
    let rows = (0..rows).map(|row| format!("https://www.example.com/{row},m-{row}\n"));
    format!("longUrl,externalId\n{}", rows.collect::<String>())
}

fn links(stack: &Stack) -> i64 {
    Sql::of(stack, None).number("SELECT count(*) FROM links")
}

#[test]
fn an_import_that_was_cut_is_repeated_and_makes_no_link_twice() {
    let mut stack = Stack::start();
    // Slow enough to be cut in its middle.
    let scopes = ["--scope", "links:write", "--scope", "links:read"];
    let limit = ["--rate-limit", "2000", "--burst", "1000"];
    let key = ["keys", "create", "--name", "slow"];
    let key = stack.sidecar.run_ok(&[&key[..], &scopes, &limit].concat());
    let key = key.trim().to_owned();
    let middle = |stack: &Stack| {
        let made = links(stack);
        made > 0 && made < ROWS as i64
    };

    // The sidecar dies: the command says what to do.
    let log = stack.directory().join("import.log");
    let file = {
        let user = User::new(&stack);
        user.file("rows.csv", &csv(ROWS))
    };
    let results = stack.directory().join("results.ndjson");
    let arguments = ["links", "import", path(&file), "--results", path(&results)];
    let user = |stack: &Stack| {
        let mut user = User::new(stack);
        user.key.clone_from(&key);
        user
    };
    let mut running = user(&stack).begin(&arguments, &log);
    until("it is under way", SOON, || middle(&stack));
    stack.sidecar.kill();
    let status = running.wait(SOON);
    assert_eq!(status.code(), Some(1), "{}", running.log());
    let told = running.log();
    let name = told.lines().next().expect("a line");
    let name = name
        .strip_prefix("shortlink: Idempotency-Key ")
        .expect("a name");
    assert!(name.starts_with("import-"), "{told}");
    assert!(told.contains("interrupted after"), "{told}");
    assert!(
        told.contains(&format!("--idempotency-key {name}")),
        "{told}"
    );
    stack.sidecar.start_again();
    assert!(middle(&stack));

    // The command dies.
    let before = links(&stack);
    let again = stack.directory().join("again.log");
    let mut running = user(&stack).begin(&arguments, &again);
    until("it has gone further", SOON, || {
        links(&stack) > before && middle(&stack)
    });
    running.kill();
    assert!(middle(&stack));

    // The third time it gets through, called the same.
    let said = user(&stack).run(&arguments);
    assert_eq!(said.code, Some(0), "{}", said.error);
    assert!(said.error.contains(name), "{}", said.error);
    assert!(said.out.starts_with("10,000 rows: "), "{}", said.out);
    assert_eq!(links(&stack), ROWS as i64);
    let distinct = "SELECT count(DISTINCT external_id) FROM links";
    assert_eq!(Sql::of(&stack, None).number(distinct), ROWS as i64);
    let results = values(&fs::read_to_string(&results).expect("results"));
    let codes: BTreeSet<String> = results
        .iter()
        .map(|result| text(&result["link"], "shortCode"))
        .collect();
    assert_eq!((results.len(), codes.len()), (ROWS, ROWS));
    assert_eq!(results[4711]["externalId"], "m-4711");
}

#[test]
fn long_rows_get_through_the_window_of_the_command_and_nginx() {
    // nginx forgets a request whose answer has begun when the sidecar reads slower than it is sent.
    let stack = Stack::start();
    let user = User::new(&stack);
    let (rows, long) = (3000, "x".repeat(2000));
    let lines = (0..rows).map(|row| format!("https://www.example.com/{row}?{long}\n"));
    let text = format!("longUrl\n{}", lines.collect::<String>());
    assert!(text.len() > 4 << 20);
    let file = user.file("rows.csv", &text);
    let said = user.run(&["links", "import", path(&file)]);
    assert_eq!(said.code, Some(0), "{}", said.error);
    assert_eq!(links(&stack), rows);
}

#[test]
fn a_quotation_mark_that_is_not_closed_is_told_at_once_and_ends_no_request() {
    let stack = Stack::start();
    let user = User::new(&stack);
    // More than the window of the command, which waits for the results of rows.
    let rows = format!("https://www.example.com/{},x\n", "x".repeat(200)).repeat(30_000);
    assert!(rows.len() > 6 << 20);
    let good = "https://www.example.com/,y\n".repeat(100);
    for (end, made) in [
        ("", 100),
        (
            "https://www.example.com/,\"\nhttps://www.example.com/,z\n",
            101,
        ),
    ] {
        let open = format!("longUrl,note\n{good}https://www.example.com/,\"Bob\n{rows}{end}");
        let file = user.file("rows.csv", &open);
        let said = user.run(&["links", "import", path(&file)]);
        assert_eq!(said.code, Some(1), "{}", said.error);
        let told = "line 102: the row spans more than 16 lines and is refused";
        assert!(said.error.contains(told), "{}", said.error);
        assert!(said.error.contains("line 102: 422"), "{}", said.error);
        let counts = format!("{} rows: {made} links created, 1 failed\n", made + 1);
        assert_eq!(said.out, counts, "{}", said.error);
    }
}

#[test]
fn who_is_refused_does_not_wait_for_standard_input() {
    let stack = Stack::shared();
    let user = User::new(stack);
    let mut command = user.command(&["links", "import", "-", "--format", "csv"]);
    command.env("SHORTLINK_KEY", "wrong").stdin(Stdio::piped());
    let mut running = command.stderr(Stdio::piped()).spawn().expect("started");
    // It stays open until the command has ended.
    let mut input = running.stdin.take().expect("an input");
    // Unless it has ended already.
    let _ = input.write_all(b"longUrl\n");
    let status = eventually("it ends", SOON, || running.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(1));
    drop(input);
}

#[test]
fn results_are_read_while_rows_are_sent() {
    // Straight to the sidecar, which stops reading rows while the client reads no results.
    let stack = Stack::start();
    let mut user = User::new(&stack);
    user.server = format!("http://127.0.0.1:{}", stack.sidecar.port);
    let rows = 40_000;
    let file = user.file("rows.csv", &csv(rows));
    let said = user.run(&["links", "import", path(&file)]);
    assert_eq!(said.code, Some(0), "{}", said.error);
    assert_eq!(said.out, "40,000 rows: 40,000 links created\n");
    assert_eq!(links(&stack), rows as i64);
}

#[test]
fn rows_that_fail_are_told_with_their_line_and_reason() {
    let stack = Stack::start();
    let user = User::new(&stack);
    let file = user.file(
        "rows.csv",
        "longUrl,note\nhttps://a.example.com/,\"two\nlines\"\nnonsense,x\n\n\
         https://b.example.com/,\nhttps://c.example.com/,a,b\n",
    );
    let said = user.run(&["links", "import", path(&file)]);
    assert_eq!(said.code, Some(1), "{}", said.error);
    assert!(said.error.contains("line 4: 422"), "{}", said.error);
    assert!(said.error.contains("/longUrl"), "{}", said.error);
    assert!(said.error.contains("line 7: "), "{}", said.error);
    assert_eq!(said.out, "4 rows: 2 links created, 2 failed\n");

    // The same as JSON, from standard input and compressed.
    let rows = "{\"longUrl\":\"https://d.example.com/\"}\n\n{\"longUrl\":1}\n";
    let mut command = user.command(&["links", "import", "-", "--format", "ndjson", "--json"]);
    let mut running = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut input = running.stdin.take().expect("an input");
    input.write_all(rows.as_bytes()).expect("written");
    drop(input);
    let output = running.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(1));
    let results = values(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(results[0]["status"], 201);
    assert_eq!(results[1]["status"], 422);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("line 3: 422"), "{error}");
    assert!(
        error.contains("2 rows: 1 links created, 1 failed"),
        "{error}"
    );

    let plain = user.file("good.ndjson", "{\"longUrl\":\"https://e.example.com/\"}\n");
    let packed = said_ok("gzip", &["-c", path(&plain)]);
    let file = user.home.join("good.ndjson.gz");
    fs::write(&file, packed).expect("a file");
    assert_eq!(
        user.ok(&["links", "import", path(&file)]),
        "1 rows: 1 links created\n"
    );
    assert_eq!(links(&stack), 4);
}

#[test]
fn the_separator_of_values_is_recognised() {
    let stack = Stack::start();
    let user = User::new(&stack);
    let rows = |it: &str| {
        format!(
            "longUrl{it}externalId{it}note\nhttps://a.example.com/{it}m-1{it}\"a{it}b,c;d\"\nnonsense{it}{it}\n"
        )
    };
    let told = "columns are separated by ";
    for (name, text, options, delimiter) in [
        ("comma", rows(","), &[][..], None),
        ("semicolon", rows(";"), &[], Some("semicolons")),
        ("tab", rows("\t"), &[], Some("tabs")),
        ("given", rows(";"), &["--delimiter", "semicolon"], None),
    ] {
        let file = user.file(&format!("{name}.csv"), &text);
        let said = user.run(&[&["links", "import", path(&file)], options].concat());
        assert_eq!(
            said.out, "2 rows: 1 links created, 1 failed\n",
            "{name}: {}",
            said.error
        );
        assert!(said.error.contains("line 3: 422"), "{name}: {}", said.error);
        match delimiter {
            Some(delimiter) => assert!(
                said.error.contains(&format!("{told}{delimiter}")),
                "{}",
                said.error
            ),
            None => assert!(!said.error.contains(told), "{name}: {}", said.error),
        }
    }
    let file = user.file("semicolon.csv", &rows(";"));
    let said = user.run(&["links", "import", path(&file), "--delimiter", "comma"]);
    assert_eq!(said.code, Some(1), "{}", said.error);
    assert!(said.error.contains("delimiter=semicolon"), "{}", said.error);
    let list = stack.api("GET", "/v1/links?externalId=m-1", None).json();
    assert_eq!(list["links"].as_array().map(Vec::len), Some(4), "{list}");
}

#[test]
fn files_in_other_encodings_are_decoded() {
    let stack = Stack::start();
    let user = User::new(&stack);
    let text = "longUrl,note\nhttps://a.example.com/,短信\n";
    let utf_16 =
        |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
    let gbk = [
        &b"longUrl,note\nhttps://a.example.com/,"[..],
        b"\xb6\xcc\xd0\xc5\n",
    ]
    .concat();
    for (name, bytes, encoding) in [
        ("marked.csv", utf_16(&format!("\u{feff}{text}")), None),
        ("utf-16.csv", utf_16(text), Some("utf-16le")),
        ("gbk.csv", gbk.clone(), Some("gbk")),
    ] {
        let file = user.home.join(name);
        fs::write(&file, bytes).expect("a file");
        let results = user.home.join("results.ndjson");
        let mut arguments = vec!["links", "import", path(&file), "--results", path(&results)];
        arguments.extend(encoding.iter().flat_map(|name| ["--encoding", name]));
        let said = user.run(&arguments);
        assert_eq!(said.code, Some(0), "{name}: {}", said.error);
        let results = values(&fs::read_to_string(&results).expect("results"));
        assert_eq!(results[0]["link"]["note"], "短信", "{name}");
    }
    // Without it, the row is refused with its line.
    let file = user.home.join("gbk.csv");
    let said = user.run(&["links", "import", path(&file)]);
    assert_eq!(said.code, Some(1), "{}", said.error);
    assert!(
        said.error.contains("line 2: 422") && said.error.contains("cannot be decoded"),
        "{}",
        said.error
    );
    let said = user.run(&["links", "import", path(&file), "--encoding", "latin1"]);
    assert_eq!(said.code, Some(2), "{}", said.error);
    assert!(
        said.error.contains("utf-16be, gbk, gb18030"),
        "{}",
        said.error
    );
}

fn said_ok(program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = std::process::Command::new(program).args(arguments).output();
    let output = output.expect("a program");
    assert!(output.status.success());
    output.stdout
}

#[test]
fn an_import_that_can_not_begin_says_why() {
    let stack = Stack::start();
    let user = User::new(&stack);
    let file = user.file("rows.txt", "longUrl\n");
    let good = user.file("rows.csv", "longUrl\nhttps://a.example.com/\n");
    let nowhere = user.home.join("none/results");
    let broken = user.file("rows.csv.gz", "no gzip");
    for (arguments, code, part) in [
        (&["links", "import", path(&file)][..], 2, "--format"),
        (
            &["links", "import", "none.csv"],
            2,
            "none.csv can't be read",
        ),
        (
            &["links", "import", path(&user.home), "--format", "csv"],
            2,
            "is a directory",
        ),
        (
            &["links", "import", path(&good), "--idempotency-key", "a b"],
            2,
            "visible ASCII characters",
        ),
        (
            &["links", "import", path(&good), "--results", path(&nowhere)],
            1,
            "can't be written",
        ),
        (
            &["links", "import", path(&broken)],
            1,
            "the file can't be read",
        ),
    ] {
        let said = user.run(arguments);
        assert_eq!(said.code, Some(code), "{arguments:?}: {}", said.error);
        assert!(said.error.contains(part), "{arguments:?}: {}", said.error);
    }
    let mut command = user.command(&["links", "import", path(&good)]);
    let refused = said(command.env("SHORTLINK_KEY", "wrong"));
    assert_eq!(refused.code, Some(1));
    assert!(refused.error.contains("401"), "{}", refused.error);
    assert_eq!(links(&stack), 0);
    let made = eventually("it is made", SOON, || {
        Some(user.ok(&["links", "import", path(&good)]))
    });
    assert_eq!(made, "1 rows: 1 links created\n");
}
