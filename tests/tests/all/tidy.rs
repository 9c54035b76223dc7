//! The house stays as ARCHITECTURE.md draws it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use shortlink_tests::workspace;

/// The folder of each crate, and the crates of this workspace that its manifest may name, tests of it aside.
const ARROWS: [(&str, &[&str]); 17] = [
    ("vocabulary", &[]),
    ("resolver", &["vocabulary"]),
    ("ngx-module", &["resolver"]),
    ("sidecar/core", &["vocabulary"]),
    ("sidecar/api", &["sidecar/core", "vocabulary"]),
    ("sidecar/clickhouse", &["sidecar/core", "vocabulary"]),
    (
        "sidecar/store",
        &["sidecar/clickhouse", "sidecar/core", "vocabulary"],
    ),
    ("sidecar/publisher", &["sidecar/core", "vocabulary"]),
    ("sidecar/enrich", &["sidecar/core"]),
    (
        "sidecar/service",
        &["sidecar/core", "sidecar/store", "vocabulary"],
    ),
    (
        "sidecar/http",
        &[
            "sidecar/api",
            "sidecar/core",
            "sidecar/service",
            "sidecar/store",
            "vocabulary",
        ],
    ),
    ("sidecar/openid", &["sidecar/core"]),
    ("sidecar/client", &["sidecar/api"]),
    ("sidecar/warehouse", &["sidecar/core"]),
    ("sidecar/webhooks", &["sidecar/core"]),
    (
        "sidecar",
        &[
            "sidecar/api",
            "sidecar/client",
            "sidecar/core",
            "sidecar/enrich",
            "sidecar/http",
            "sidecar/openid",
            "sidecar/publisher",
            "sidecar/service",
            "sidecar/store",
            "sidecar/warehouse",
            "sidecar/webhooks",
            "vocabulary",
        ],
    ),
    ("tests", &["vocabulary"]),
];

const HTTP: &[&str] = &[
    "sidecar/http",
    "sidecar/openid",
    "sidecar/client",
    "sidecar/warehouse",
    "sidecar/webhooks",
];

/// The crates whose manifests may name a library, tests of them aside.
const LIBRARIES: [(&str, &[&str]); 18] = [
    ("axum", &["sidecar/http"]),
    ("schemars", &["sidecar/api", "sidecar/http"]),
    ("sqlx", &["sidecar/store"]),
    ("clickhouse", &["sidecar/clickhouse"]),
    ("redis", &["sidecar/publisher"]),
    ("ua-parser", &["sidecar/enrich"]),
    ("fancy-regex", &["sidecar/enrich"]),
    ("regex", &["sidecar/enrich"]),
    ("maxminddb", &["sidecar/enrich"]),
    ("comfy-table", &["sidecar/client"]),
    ("csv-core", &["sidecar/api"]),
    ("encoding_rs", &["sidecar/api"]),
    ("hyper", HTTP),
    ("hyper-util", HTTP),
    ("openidconnect", &["sidecar/openid"]),
    ("chrono", &["sidecar/openid"]),
    ("parquet", &["sidecar/warehouse"]),
    ("object_store", &["sidecar/warehouse"]),
];

fn files_below(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if !matches!(&*name, "target" | ".git" | "var" | "corpus" | "artifacts") {
                found.extend(files_below(&path, ending));
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found
}

/// The code of a Rust file without its comments.
fn code_of(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a file");
    let code = text
        .lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    code.collect::<Vec<_>>().join("\n")
}

/// Returns whether a file of this workspace holds no production code.
fn is_for_tests(file: &Path) -> bool {
    let inside = file.strip_prefix(workspace()).expect("below the workspace");
    let marks = ["tests", "tests.rs", "testing.rs", "examples"];
    inside
        .iter()
        .any(|step| marks.iter().any(|mark| step == *mark))
}

/// Returns whether `word` stands in `code` as a word of its own.
fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(start, _)| {
        let is_part = |character: char| character.is_alphanumeric() || character == '_';
        !code[..start].ends_with(is_part) && !code[start + word.len()..].starts_with(is_part)
    })
}

/// The dependencies that the manifest of a crate names for its library and programs.
fn dependencies(folder: &str) -> BTreeSet<String> {
    let manifest = workspace().join(folder).join("Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("a manifest");
    let mut is_inside = false;
    let mut names = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_inside = line.ends_with("dependencies]") && !line.contains("dev-");
        } else if is_inside && let Some((name, _)) = line.split_once(['.', ' ', '=']) {
            names.insert(name.to_owned());
        }
    }
    names
}

/// The name by which manifests depend on a crate.
fn name_of(folder: &str) -> String {
    match folder.strip_prefix("sidecar/") {
        Some(part) => format!("shortlink-{part}"),
        None => folder.to_owned(),
    }
}

#[test]
fn arrows_between_crates_point_only_as_drawn() {
    for (folder, allowed) in ARROWS {
        let dependencies = dependencies(folder);
        let used = ARROWS.map(|(folder, _)| folder);
        let used = used
            .into_iter()
            .filter(|used| dependencies.contains(&name_of(used)));
        assert_eq!(
            used.collect::<BTreeSet<_>>(),
            allowed.iter().copied().collect(),
            "{folder}"
        );
    }
    let members = fs::read_to_string(workspace().join("Cargo.toml")).expect("the workspace");
    let members = members.split("members = [").nth(1).expect("members");
    let members = members.split(']').next().expect("members");
    let listed: BTreeSet<&str> = members.split('"').skip(1).step_by(2).collect();
    assert_eq!(
        listed,
        ARROWS.iter().map(|(folder, _)| *folder).collect(),
        "a crate has no arrows drawn"
    );
}

#[test]
fn unsafe_code_stands_in_the_module_alone() {
    for file in files_below(workspace(), ".rs") {
        let inside = file.strip_prefix(workspace()).expect("below the workspace");
        let is_allowed = [
            "ngx-module",
            "third-party/nginx-sys",
            "tests/tests/all/tidy.rs",
        ]
        .iter()
        .any(|place| inside.starts_with(place));
        if !is_allowed {
            assert!(!has_word(&code_of(&file), "unsafe"), "{}", inside.display());
        }
    }
    for (folder, _) in ARROWS.iter().filter(|(folder, _)| *folder != "ngx-module") {
        let root = workspace().join(folder).join("src/lib.rs");
        let text = fs::read_to_string(root).expect("a root");
        assert!(text.contains("#![forbid(unsafe_code)]"), "{folder}");
    }
}

/// The floors of the module from the lowest, and the files of each with what is below them.
const FLOORS: [&[&str]; 8] = [
    &["nginx"],
    &["settings"],
    &["worker"],
    &["respond", "settled", "visitor", "host", "state", "headers"],
    &[
        "handler",
        "fallback",
        "status",
        "visits",
        "misses",
        "answers",
        "foresight",
        "variables",
    ],
    &["driver"],
    &["directives", "layout"],
    &["lib"],
];

/// The files of a crate, by their paths: `worker`, `worker::edge`.
fn files_of(folder: &str) -> BTreeMap<String, PathBuf> {
    let root = workspace().join(folder).join("src");
    let files = files_below(&root, ".rs").into_iter().map(|file| {
        let inside = file.strip_prefix(&root).expect("below the crate");
        let name = inside.with_extension("").display().to_string();
        (name.replace('/', "::"), file)
    });
    files.collect()
}

/// The paths behind `use crate::` in a file, each of a group apart; or behind `use super::`.
fn used_paths(code: &str, beginning: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for used in code.split(beginning).skip(1) {
        let used = used.split(';').next().unwrap_or_default();
        match used.strip_prefix('{') {
            None => paths.push(used.to_owned()),
            Some(group) => {
                assert!(!group.contains('{'), "a group in a group: {used}");
                let group = group.trim_end_matches('}').split(',');
                let names = group.map(|it| it.split(" as ").next().unwrap_or_default().trim());
                paths.extend(names.filter(|it| !it.is_empty()).map(str::to_owned));
            }
        }
    }
    paths
}

/// The files that each file of a crate uses.
fn arrows_of(folder: &str) -> BTreeMap<String, BTreeSet<String>> {
    let files = files_of(folder);
    let files: BTreeMap<_, _> = files
        .into_iter()
        .filter(|(_, file)| !is_for_tests(file))
        .collect();
    let mut arrows = BTreeMap::new();
    for (name, file) in &files {
        let code = code_of(file);
        let code = code.split("#[cfg(test)]").next().unwrap_or_default();
        let parent = name.rsplit_once("::").map_or("lib", |(parent, _)| parent);
        let of_parent = used_paths(code, "use super::").into_iter();
        let of_parent = of_parent.map(|path| format!("{parent}::{path}"));
        let uses = used_paths(code, "use crate::").into_iter().chain(of_parent);
        let targets = uses.map(|path| {
            let mut target = path.split("::{").next().unwrap_or_default();
            while !files.contains_key(target) {
                let shorter = target.rsplit_once("::");
                target = shorter.unwrap_or_else(|| panic!("{name} uses {path}")).0;
            }
            target.to_owned()
        });
        arrows.insert(name.clone(), targets.filter(|it| it != name).collect());
    }
    arrows
}

/// Checks that no file uses one that uses it, whatever is between them.
fn assert_no_circle(mut arrows: BTreeMap<String, BTreeSet<String>>) {
    // A file that uses none of those left is in no circle.
    loop {
        let free: Vec<String> = arrows
            .iter()
            .filter(|(_, used)| used.iter().all(|it| !arrows.contains_key(it)))
            .map(|(file, _)| file.clone())
            .collect();
        if free.is_empty() {
            break;
        }
        arrows.retain(|file, _| !free.contains(file));
    }
    assert!(arrows.is_empty(), "these use each other: {arrows:#?}");
}

#[test]
fn no_file_of_the_resolver_uses_one_that_uses_it() {
    let arrows = arrows_of("resolver");
    assert!(arrows.values().map(BTreeSet::len).sum::<usize>() > 80);
    assert_no_circle(arrows);
}

#[test]
fn arrows_within_the_module_point_down() {
    let floor = |file: &str| {
        let top = file.split("::").next().expect("a name");
        let floor = FLOORS.iter().position(|floor| floor.contains(&top));
        floor.unwrap_or_else(|| panic!("{file} is on no floor"))
    };
    for (name, file) in files_of("ngx-module") {
        let code = code_of(&file);
        let mentions = code.matches("crate::").count() - code.matches("$crate::").count();
        let used = code.matches("use crate::").count();
        assert_eq!(mentions, used, "{name}: crate:: outside of use");
        assert!(
            name == "lib" || !code.contains("super::"),
            "{name}: super::"
        );
    }
    let arrows = arrows_of("ngx-module");
    assert!(arrows.len() > 40, "{arrows:?}");
    assert!(arrows.values().map(BTreeSet::len).sum::<usize>() > 100);
    for (file, used) in &arrows {
        for used in used {
            assert!(floor(used) <= floor(file), "{file} uses {used} above it");
        }
    }
    assert_no_circle(arrows);
}

#[test]
fn only_the_lowest_floor_of_the_module_knows_the_types_of_nginx() {
    for (name, file) in files_of("ngx-module") {
        let is_low = name == "lib" || name == "layout" || name.starts_with("nginx");
        assert!(
            is_low || !has_word(&code_of(&file), "ngx"),
            "{name} speaks of ngx"
        );
    }
}

/// The most lines of one unsafe block, and the largest share of the module's lines in unsafe code, in hundredths.
const MOST_UNSAFE_LINES: usize = 30;
const MOST_UNSAFE_SHARE: usize = 20;

/// The code of a file without comments, and without what stands in quotation marks.
fn bare_code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a file");
    let mut bare = String::new();
    let mut rest = text.as_str();
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else if first == '"' {
            let mut is_escaped = false;
            let end = rest[1..].find(|character| {
                let is_end = character == '"' && !is_escaped;
                is_escaped = character == '\\' && !is_escaped;
                is_end
            });
            let end = 1 + end.expect("the end of a text");
            bare.extend(rest[..end].chars().filter(|it| *it == '\n'));
            rest = &rest[end + 1..];
        } else if let Some(end) = character_end(rest) {
            rest = &rest[end..];
        } else {
            bare.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    bare
}

/// The end of a literal such as `'{'` or `b'\''` at the beginning of a text; a lifetime is none.
fn character_end(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    let length = match inside.strip_prefix('\\') {
        Some(escaped) => 1 + escaped.chars().next()?.len_utf8(),
        None => inside.chars().next()?.len_utf8(),
    };
    inside[length..].starts_with('\'').then_some(length + 2)
}

/// The end of the block that begins at `start`.
fn block_end(code: &str, start: usize) -> usize {
    let mut depth = 0;
    for (offset, character) in code[start..].char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 1 => return start + offset,
            '}' => depth -= 1,
            _ => {}
        }
    }
    panic!("a block without an end");
}

/// The blocks and bodies of functions that are unsafe: their places, and whether each is a block.
fn unsafe_places(code: &str) -> Vec<(std::ops::Range<usize>, bool)> {
    let mut places = Vec::new();
    for (word, _) in code.match_indices("unsafe") {
        let behind = code[word + "unsafe".len()..].trim_start();
        let is_block = behind.starts_with('{');
        let signature = behind
            .strip_prefix("extern")
            .map_or(behind, |it| it.trim_start());
        // A type of functions has no name.
        let is_function = signature.strip_prefix("fn ").is_some();
        let body = code[word..].find('{').map(|offset| word + offset);
        if let Some(start) = body.filter(|_| is_block || is_function) {
            places.push((start..block_end(code, start), is_block));
        }
    }
    places
}

#[test]
fn little_code_of_the_module_is_unsafe() {
    let (mut lines, mut unsafe_lines, mut blocks) = (0, 0, 0);
    for (name, file) in files_of("ngx-module") {
        let code = bare_code(&file);
        let places = unsafe_places(&code);
        let mut start = 0;
        for line in code.split_inclusive('\n') {
            let end = start + line.len();
            if !line.trim().is_empty() {
                lines += 1;
                let is_inside = places
                    .iter()
                    .any(|(at, _)| at.start < end && start <= at.end);
                unsafe_lines += usize::from(is_inside);
            }
            start = end;
        }
        for (at, _) in places.iter().filter(|(_, is_block)| *is_block) {
            let long = code[at.clone()]
                .lines()
                .filter(|line| !line.trim().is_empty())
                .count();
            assert!(
                long <= MOST_UNSAFE_LINES,
                "{name}: an unsafe block of {long} lines"
            );
            blocks += 1;
        }
    }
    assert!(
        lines > 4000 && blocks > 100,
        "{lines} lines, {blocks} blocks"
    );
    assert!(
        unsafe_lines * 100 <= lines * MOST_UNSAFE_SHARE,
        "{unsafe_lines} of {lines} lines"
    );
}

#[test]
fn each_library_of_the_sidecar_is_named_by_its_crates_only() {
    for (library, homes) in LIBRARIES {
        let naming = ARROWS
            .iter()
            .map(|(folder, _)| *folder)
            .filter(|folder| dependencies(folder).contains(library));
        assert_eq!(naming.collect::<Vec<_>>(), homes, "{library}");
    }
}

/// Public asynchronous functions that are generic: only their callers can compile them.
const GENERIC: [&str; 2] = [
    "sidecar/service/src/jobs.rs",
    "sidecar/service/src/resolve.rs",
];

#[test]
fn an_asynchronous_function_is_compiled_in_its_crate_alone() {
    let crates = [
        "clickhouse",
        "http",
        "openid",
        "publisher",
        "service",
        "store",
        "warehouse",
    ];
    let mut count = 0;
    let files = crates
        .iter()
        .flat_map(|it| files_of(&format!("sidecar/{it}")));
    for (name, file) in files {
        let is_generic = GENERIC.iter().any(|it| file.ends_with(it));
        if is_generic || is_for_tests(&file) {
            continue;
        }
        let code = code_of(&file);
        let mut before = "";
        for line in code.lines().map(str::trim) {
            if line.starts_with("pub async fn ") {
                assert!(
                    before.starts_with("#[boxed"),
                    "{name}: {line}: every crate that awaits it compiles it again, without #[boxed]"
                );
                count += 1;
            }
            before = line;
        }
    }
    assert!(count > 200, "{count}");
}

#[test]
fn the_business_layer_reads_no_files() {
    let mut files = files_below(&workspace().join("sidecar/core/src"), ".rs");
    files.extend(files_below(&workspace().join("sidecar/service/src"), ".rs"));
    assert!(files.len() > 50);
    for file in files.iter().filter(|file| !is_for_tests(file)) {
        let code = code_of(file);
        for word in ["std::fs", "std::io", "std::env", "tokio::fs", "tokio::net"] {
            assert!(
                !has_word(&code, word),
                "{} speaks of {word}",
                file.display()
            );
        }
    }
}

#[test]
fn the_module_and_the_edge_keep_their_rooms() {
    for file in files_below(&workspace().join("resolver/src"), ".rs") {
        let code = code_of(&file);
        for word in ["ngx", "std::net", "std::io", "Instant", "SystemTime"] {
            assert!(!code.contains(word), "{} speaks of {word}", file.display());
        }
    }
    for file in files_below(&workspace().join("vocabulary/src"), ".rs") {
        let code = code_of(&file);
        for word in [
            "std::net",
            "std::io",
            "std::fs",
            "Instant",
            "SystemTime",
            "rand",
        ] {
            assert!(
                !has_word(&code, word),
                "{} speaks of {word}",
                file.display()
            );
        }
    }
}

#[test]
fn every_directive_and_variable_is_documented() {
    let reference = fs::read_to_string(workspace().join("docs/src/reference/directives.md"))
        .expect("reference");
    let directives = workspace().join("ngx-module/src/directives.rs");
    let directives = fs::read_to_string(directives).expect("directives.rs");
    let table = directives
        .split("= directives! {")
        .nth(1)
        .expect("the table");
    let table = table.split("\n};").next().expect("the table of directives");
    let rows = table.split(';').filter_map(|row| row.split_once(':'));
    let rows: Vec<(&str, &str)> = rows
        .map(|(name, row)| (name.trim().trim_matches('"'), row))
        .collect();
    let directives: Vec<&str> = rows.iter().map(|(name, _)| *name).collect();
    assert!(directives.len() >= 5);
    for directive in &directives {
        assert!(
            reference.contains(&format!("## {directive}\n")),
            "{directive}"
        );
    }
    // The contexts that the module registers are those of the reference.
    let contexts = [
        ("NGX_HTTP_MAIN_CONF", "http"),
        ("NGX_HTTP_SRV_CONF", "server"),
        ("NGX_HTTP_LOC_CONF", "location"),
        ("NGX_HTTP_LIF_CONF", "if in location"),
    ];
    for (directive, row) in &rows {
        let kind = row.split("=>").next().expect("a type");
        let told: Vec<&str> = contexts
            .iter()
            .filter(|(flag, _)| has_word(kind, flag))
            .map(|(_, name)| *name)
            .collect();
        let section = reference.split(&format!("## {directive}\n")).nth(1);
        let section = section.and_then(|rest| rest.split("\n## ").next());
        let section = section.expect("a section");
        let row = |name: &str| {
            let row = section
                .lines()
                .find(|line| line.starts_with(&format!("| {name} |")));
            row.unwrap_or_else(|| panic!("{directive} has no {name}"))
                .to_owned()
        };
        assert_eq!(
            row("Context"),
            format!("| Context | {} |", told.join(", ")),
            "{directive}"
        );
        assert!(
            row("Syntax").contains(&format!("`{directive}")),
            "{directive}"
        );
        row("Default");
        assert!(
            section.contains("\nThis directive appeared "),
            "{directive}"
        );
    }
    let documented = reference.matches("\n## shortlink").count();
    assert_eq!(
        documented,
        directives.len(),
        "a directive that is documented is gone"
    );
    let variables = fs::read_to_string(workspace().join("ngx-module/src/variables.rs"));
    let variables = variables.expect("variables.rs");
    let table = variables
        .split("VARIABLES")
        .nth(1)
        .expect("the table of variables");
    let table = table.split("];").next().expect("the table of variables");
    let names: Vec<&str> = table.split('"').skip(1).step_by(2).collect();
    assert!(names.len() >= 7);
    for name in names {
        assert!(reference.contains(&format!("`${name}`")), "${name}");
    }
}

#[test]
fn the_documents_name_only_what_is_there() {
    let documents = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "bench/README.md",
        "containers/README.md",
    ];
    let mut documents: Vec<PathBuf> = documents.map(|it| workspace().join(it)).into();
    documents.extend(files_below(&workspace().join("docs"), ".md"));
    assert!(documents.len() > 25);
    for path in documents {
        let text = fs::read_to_string(&path).expect("a document");
        let document = path.display();
        for path in text.split('`').skip(1).step_by(2) {
            let is_path = path.contains('/')
                && !path.contains(' ')
                && [
                    "vocabulary",
                    "resolver",
                    "ngx-module",
                    "sidecar",
                    "nginx",
                    "packaging",
                    "migrations",
                    "tests",
                    "bench",
                    "scripts",
                    "fuzz",
                    "operations",
                    "containers",
                    "clients",
                    "docs",
                ]
                .iter()
                .any(|room| path.starts_with(&format!("{room}/")));
            if is_path && !path.contains(['{', '*', '<']) {
                assert!(workspace().join(path).exists(), "{document} names {path}");
            }
        }
    }
}

/// Files that act on a link's number of visits, or have it as a default of a campaign, and so name it for another
/// reason than that links have it.
const ACTING_ON_VISITS: [&str; 8] = [
    "service/src/visits.rs",
    "store/src/visits/keeping.rs",
    "api/src/campaign.rs",
    "http/src/campaigns.rs",
    "core/src/campaign/defaults.rs",
    "store/src/defaults.rs",
    "console/pages/campaign.js",
    "console/pages/campaign-form.js",
];

/// The number of files that may name a member of a link; CONTRIBUTING.md lists them.
const FILES_OF_A_MEMBER: usize = 10;

#[test]
fn a_member_of_a_link_is_named_in_few_files() {
    let sidecar = workspace().join("sidecar");
    let mut files = files_below(&sidecar, ".rs");
    files.extend(files_below(&sidecar.join("console"), ".js"));
    let naming = files.iter().filter(|file| {
        let inside = file.strip_prefix(&sidecar).expect("below the sidecar");
        let is_acting = ACTING_ON_VISITS.iter().any(|path| inside.ends_with(path));
        let code = code_of(file);
        let production = code.split("#[cfg(test)]").next().unwrap_or_default();
        let names = ["max_visits", "maxVisits"];
        !is_for_tests(file) && !is_acting && names.iter().any(|name| has_word(production, name))
    });
    let naming: Vec<&PathBuf> = naming.collect();
    assert!(
        (1..=FILES_OF_A_MEMBER).contains(&naming.len()),
        "{naming:#?}"
    );
}

#[test]
fn the_versions_of_nginx_in_the_readme_are_those_that_are_tested() {
    let readme = fs::read_to_string(workspace().join("README.md")).expect("README.md");
    let table = readme.split("| nginx of | Version |").nth(1);
    let table = table.and_then(|rest| rest.split("\n\n").next());
    let rows = table.expect("the table").lines().skip(2);
    // "nginx 1.31.4" is the source nginx-1.31.4; Debian's is the one that is installed.
    let shown = rows.filter(|row| !row.contains("Debian")).map(|row| {
        let version = row.split(" | ").nth(1);
        version.expect("a version").replace(' ', "-")
    });
    let versions =
        fs::read_to_string(workspace().join("scripts/nginx-versions")).expect("versions");
    let tested = versions.lines().filter(|line| !line.starts_with('#'));
    let tested = tested.map(|line| line.split(' ').next().expect("a name").to_owned());
    let tested: BTreeSet<String> = tested.collect();
    assert!(tested.len() >= 3, "{tested:?}");
    assert_eq!(shown.collect::<BTreeSet<_>>(), tested);
}
