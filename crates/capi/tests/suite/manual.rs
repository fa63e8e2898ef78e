//! `packaging/tollfree.3` is the manual page of the header: each function with what the header says of it.

use std::fmt::Write as _;
use std::fs;

use crate::header::exported;

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include/tollfree.h");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/tollfree.3");

/// A function of the header.
struct Function {
    name: String,
    declaration: String,
    text: String,
}

/// All functions, by their names.
fn functions(header: &str) -> Vec<Function> {
    let mut functions = Vec::new();
    for comment in header.split("\n/*\n").skip(1) {
        let Some((text, rest)) = comment.split_once("\n */\n") else { continue };
        let declaration = rest.split_inclusive(';').next().unwrap_or_default();
        let Some(name) = declaration.split('(').next().and_then(|head| head.split([' ', '*']).next_back())
        else {
            continue;
        };
        if !name.starts_with("tollfree_") || !declaration.contains('(') || declaration.contains('{') {
            continue;
        }
        let words: Vec<&str> = declaration.split_whitespace().collect();
        functions.push(Function {
            name: name.to_owned(),
            declaration: words.join(" "),
            text: text.to_owned(),
        });
    }
    functions.sort_by(|one, other| one.name.cmp(&other.name));
    functions
}

/// As roff has a text.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('`', "").replace('…', "...");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

fn page(header: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut page = format!(
        ".\\\" Written by the tests of crates/capi from include/tollfree.h, and not to be changed here.\n\
         .TH TOLLFREE 3 \"\" \"tollfree {version}\" \"Library functions\"\n\
         .SH NAME\ntollfree \\- gRPC calls between processes of one host, over shared memory\n\
         .SH SYNOPSIS\n.nf\n.B #include <tollfree.h>\n\n\
         .B cc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs tollfree)\n.fi\n\
         .SH DESCRIPTION\nFunctions that return an int return 0, or the number of an error, whose text tollfree_error_text gives. Unless a function \
         says \"any thread\", it is called in the thread that made its loop. Of structures with a size, set that to their sizeof, and what is \
         not needed to 0. The header describes structures, constants and numbers.\n.SH FUNCTIONS\n"
    );
    for Function { declaration, text, .. } in functions(header) {
        let _ = writeln!(page, ".TP\n.B {}", escaped(&declaration));
        // What is beside the subject is for tools.
        let text = text.split("# Safety").next().unwrap_or_default();
        for paragraph in text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty()) {
            if let Some(returns) = paragraph.strip_prefix("@return ") {
                let _ = writeln!(page, ".IP\nReturns {}", escaped(&lines(returns)));
            } else {
                let _ = writeln!(page, "{}", escaped(&lines(paragraph)));
            }
        }
    }
    page.push_str(
        ".SH SEE ALSO\nThe guide docs/guide/c.md and the numbers of errors spec/errors.md of the sources.\n",
    );
    page
}

/// A paragraph as one line.
fn lines(paragraph: &str) -> String {
    paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// `TOLLFREE_WRITE_HEADER=1` writes it, too.
#[test]
fn the_manual_page_is_what_the_header_says() {
    let header = fs::read_to_string(HEADER).expect("the header");
    let made = page(&header);
    if std::env::var_os("TOLLFREE_WRITE_HEADER").is_some() {
        fs::write(PAGE, made).expect("the page is written");
        return;
    }
    let kept = fs::read_to_string(PAGE).expect("the page");
    assert!(
        kept == made,
        "packaging/tollfree.3 is not what the header says: TOLLFREE_WRITE_HEADER=1 writes it anew"
    );
}

#[test]
fn each_exported_function_is_in_the_manual_page() {
    let header = fs::read_to_string(HEADER).expect("the header");
    let described: Vec<String> = functions(&header).into_iter().map(|function| function.name).collect();
    assert_eq!(described, exported());
}
