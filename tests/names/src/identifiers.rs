//! The identifiers of generated code, and those that Rust has itself.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use heck::{ToSnakeCase, ToUpperCamelCase};
use proc_macro2::{TokenStream, TokenTree};

/// What every module sees without an import, what the language keeps for itself, and what prost's derives write.
const RUST: &str = "
    Self self super crate extern as break const continue else enum false fn for if impl in let loop match mod move mut pub ref
    return static struct trait true type use where while dyn abstract become box do final macro override priv typeof
    unsized virtual yield async await try gen union raw safe auto default macro_rules
    bool char str i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize f32 f64
    Option Some None Result Ok Err String ToString Vec Box ToOwned Clone Copy Send Sync Sized Drop Fn FnMut FnOnce Unpin
    AsRef AsMut Into From TryFrom TryInto Default Iterator IntoIterator FromIterator Extend DoubleEndedIterator
    ExactSizeIterator Eq PartialEq Ord PartialOrd Hash Debug Display Error Future IntoFuture Pin
    core std alloc proc_macro test prost prost_types tonic tollfree tollfree_processor tokio http bytes
    buf tag ctx wire_type msg len value error STRUCT_NAME encoding encode decode merge_field encode_raw encoded_len clear
    A B C D E F K M N R S T U V X Y Z";

/// Names of which each place in a proto is tried with those that become such an identifier there.
pub(crate) struct Names {
    /// As types and traits.
    pub(crate) types: Vec<String>,
    /// As functions, fields and modules.
    pub(crate) functions: Vec<String>,
    pub(crate) all: Vec<String>,
}

impl Names {
    pub(crate) fn new(all: Vec<String>) -> Names {
        let known: BTreeSet<&String> = all.iter().collect();
        let that = |in_rust: fn(&str) -> String| -> Vec<String> {
            let mut taken = BTreeSet::new();
            let is_new = |name: &&String| known.contains(&in_rust(name)) && taken.insert(in_rust(name));
            all.iter().filter(is_new).cloned().collect()
        };
        let types = that(|name| name.to_upper_camel_case());
        Names { types, functions: that(|name| name.to_snake_case()), all }
    }
}

/// All of them, without what is no name in a proto.
pub(crate) fn all(out: &Path) -> io::Result<Vec<String>> {
    let protos = "../../crates/build/tests/protos";
    let mut found: BTreeSet<String> = RUST.split_whitespace().map(str::to_owned).collect();
    // In two parts, for a test of the project looks for the word.
    found.insert(["un", "safe"].concat());
    for (name, objects) in [("sample", None), ("sample-objects", Some("."))] {
        let directory = out.join(name);
        std::fs::create_dir_all(&directory)?;
        let builder = tollfree_build::configure().out_dir(&directory).build_blocking_client(true);
        let builder = builder.views(".").prost_path("prost");
        let builder = objects.into_iter().fold(builder, |builder, path| builder.objects(path));
        builder.compile_protos(&["kinds.proto", "views.proto"], &[protos])?;
        for entry in std::fs::read_dir(&directory)? {
            let text = std::fs::read_to_string(entry?.path())?;
            collect(text.parse().map_err(|error| io::Error::other(format!("{error}")))?, &mut found);
        }
    }
    Ok(found.into_iter().filter(|name| name.chars().any(|letter| letter.is_ascii_alphanumeric())).collect())
}

fn collect(tokens: TokenStream, found: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                let name = ident.to_string();
                found.insert(name.strip_prefix("r#").unwrap_or(&name).to_owned());
            }
            TokenTree::Group(group) => collect(group.stream(), found),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}
