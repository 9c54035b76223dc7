//! Prepares the check of structure layouts (`src/layout.rs`) and passes on what nginx-sys found.
//!
//! bindgen makes the bindings, the C compiler compiles nginx, and bindgen has been wrong about bit-fields: a module
//! with wrong bindings loads, runs and writes into the wrong bits. So for every field in `layout.fields`, this writes
//! two programs, one in C and one in Rust, that report its place.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=layout.fields");
    println!("cargo::rerun-if-changed=build.rs");

    let version: u64 = variable("DEP_NGINX_VERSION_NUMBER")
        .parse()
        .expect("a version number");
    if version < 1_022_000 {
        println!("cargo::error=nginx 1.22.0 or newer is needed, this is {version}");
        return;
    }

    // The bindings and the C side would fail in many places.
    let features = variable("DEP_NGINX_FEATURES");
    if !features.split(',').any(|feature| feature == "http_ssl") {
        println!(
            "cargo::error=this nginx is configured without TLS: pass --with-http_ssl_module to its ./configure"
        );
        return;
    }

    // From 1.23 on nginx links headers of one name instead of keeping arrays of them.
    println!("cargo::rustc-check-cfg=cfg(nginx_linked_headers)");
    if version >= 1_023_000 {
        println!("cargo::rustc-cfg=nginx_linked_headers");
    }

    let fields = fs::read_to_string("layout.fields").expect("layout.fields");
    let fields: Vec<&str> = fields
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let out = PathBuf::from(variable("OUT_DIR"));
    fs::write(out.join("layout.rs"), rust_side(&fields)).expect("layout.rs");
    let c_file = out.join("layout.c");
    fs::write(&c_file, c_side(&fields)).expect("layout.c");
    compile(&c_file);
}

fn variable(name: &str) -> String {
    println!("cargo::rerun-if-env-changed={name}");
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: is nginx-sys a dependency?"))
}

/// The definitions that nginx is compiled with. nginx-sys 0.5.0 writes the name of this variable
/// in a way that cargo takes for another one; both are looked at.
fn defines() -> String {
    for name in ["DEP_NGINX_CFLAGS", "DEP_NGINX_METADATA"] {
        println!("cargo::rerun-if-env-changed={name}");
        if let Ok(value) = env::var(name) {
            return value.strip_prefix("cflags=").unwrap_or(&value).to_owned();
        }
    }
    String::new()
}

/// Compiles the C side as nginx itself is compiled.
fn compile(file: &Path) {
    let mut build = cc::Build::new();
    build.file(file).warnings(false).opt_level(0);
    build.includes(env::split_paths(&variable("DEP_NGINX_INCLUDE")));
    for define in defines().split_whitespace() {
        if let Some(define) = define.strip_prefix("-D") {
            match define.split_once('=') {
                Some((name, value)) => build.define(name, value),
                None => build.define(define, None),
            };
        }
    }
    build.compile("shortlink_layout");
}

/// A field's structure, name, and whether it is a bit-field; the name of a whole is empty.
fn parts(field: &str) -> (&str, &str, bool) {
    if let Some((structure, name)) = field.split_once('.') {
        (structure, name, false)
    } else if let Some((structure, name)) = field.split_once(':') {
        (structure, name, true)
    } else {
        (field, "", false)
    }
}

fn c_side(fields: &[&str]) -> String {
    let mut c = String::from(
        "#include <ngx_config.h>\n#include <ngx_core.h>\n#include <ngx_event.h>\n\
         #include <ngx_event_connect.h>\n#include <ngx_http.h>\n#include <stddef.h>\n\
         #include <string.h>\n\n\
         static void bits(const unsigned char *bytes, size_t size, size_t *place) {\n\
         \x20   size_t i, first = (size_t) -1, count = 0;\n\
         \x20   for (i = 0; i < size * 8; i++) {\n\
         \x20       if (bytes[i / 8] >> (i % 8) & 1) {\n\
         \x20           if (first == (size_t) -1) { first = i; }\n\
         \x20           count++;\n\
         \x20       }\n\
         \x20   }\n\
         \x20   place[0] = first;\n\
         \x20   place[1] = count;\n\
         }\n\n\
         void shortlink_c_layout(size_t *places) {\n",
    );
    for (index, field) in fields.iter().enumerate() {
        let place = 2 * index;
        match parts(field) {
            (structure, "", _) => {
                let _ = writeln!(
                    c,
                    "    places[{place}] = 0; places[{place} + 1] = sizeof({structure});"
                );
            }
            (structure, name, false) => {
                let _ = writeln!(
                    c,
                    "    places[{place}] = offsetof({structure}, {name}); \
                     places[{place} + 1] = sizeof((({structure} *) 0)->{name});"
                );
            }
            (structure, name, true) => {
                let _ = writeln!(
                    c,
                    "    {{ {structure} value; memset(&value, 0, sizeof(value)); value.{name} = -1; \
                     bits((unsigned char *) &value, sizeof(value), places + {place}); }}"
                );
            }
        }
    }
    c.push_str("}\n");
    c
}

fn rust_side(fields: &[&str]) -> String {
    let mut rust = format!(
        "/// The fields, in the order in which both compilers report them.\n\
         static FIELDS: [&str; {count}] = {fields:?};\n\n\
         /// Where the bindings believe each field to be.\n\
         fn rust_layout() -> [Place; {count}] {{\n    [\n",
        count = fields.len(),
    );
    for field in fields {
        let line = match parts(field) {
            (structure, "", _) => format!("whole::<{structure}>()"),
            (structure, name, false) => format!("field!({structure}, {name})"),
            (structure, name, true) => format!("bits!({structure}, set_{name})"),
        };
        let _ = writeln!(rust, "        {line},");
    }
    rust.push_str("    ]\n}\n");
    rust
}
