//! The modules that views are generated in, and which names are taken in each.

use std::collections::{BTreeMap, HashMap};

use heck::{ToSnakeCase, ToUpperCamelCase};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};

use crate::check::Complaints;

/// A module, as the names of all around it and its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Scope(Vec<String>);

impl Scope {
    pub(super) fn of_package(package: &str) -> Scope {
        let parts = package.split('.').filter(|part| !part.is_empty());
        Scope(parts.map(|part| part.to_snake_case()).collect())
    }

    /// The module of what is nested in a message.
    pub(super) fn inside(&self, message: &str) -> Scope {
        let mut parts = self.0.clone();
        parts.push(message.to_snake_case());
        Scope(parts)
    }

    /// A path that is said where the root is included, seen from here.
    pub(super) fn up_to_root(&self, path: &str) -> String {
        if path.starts_with("::") || path == "crate" || path.starts_with("crate::") {
            return path.to_owned();
        }
        let path = if path == "self" { "" } else { path.strip_prefix("self::").unwrap_or(path) };
        let up = self.0.iter().map(|_| "super").chain((!path.is_empty()).then_some(path));
        let up: Vec<&str> = up.collect();
        if up.is_empty() { "self".to_owned() } else { up.join("::") }
    }

    /// The path of a name in another scope, seen from this one.
    pub(super) fn path_to(&self, other: &Scope, name: &Ident) -> TokenStream {
        if self == other {
            return quote!(#name);
        }
        let up = self.0.iter().map(|_| quote!(super::));
        let down = other.0.iter().map(|part| ident(part));
        quote!(#(#up)* #(#down::)* #name)
    }
}

/// A name in Rust: those that the language has itself are escaped.
pub(super) fn ident(name: &str) -> Ident {
    match name {
        "self" | "super" | "extern" | "crate" | "Self" => format_ident!("{name}_"),
        "gen" => Ident::new_raw(name, Span::call_site()),
        _ if name.starts_with(|first: char| first.is_ascii_digit()) => format_ident!("_{name}"),
        _ if syn::parse_str::<Ident>(name).is_ok() => format_ident!("{name}"),
        _ => Ident::new_raw(name, Span::call_site()),
    }
}

/// The name of a type, as prost has it.
pub(super) fn type_ident(name: &str) -> Ident {
    ident(&name.to_upper_camel_case())
}

/// The name of a function, as prost has it.
pub(super) fn field_ident(name: &str) -> Ident {
    ident(&name.to_snake_case())
}

/// Names of one kind in one place, and what has each.
#[derive(Debug, Default)]
pub(super) struct Names {
    taken: HashMap<String, String>,
}

impl Names {
    /// Takes a name for `what`; complains if something else has it.
    pub(super) fn take(&mut self, name: &Ident, what: &str, path: &[i32], complaints: &mut Complaints<'_>) {
        if let Some(other) = self.taken.insert(name.to_string(), what.to_owned())
            && other != what
        {
            complaints.push(path, format!("{other} and {what} would both have {name} in views; rename one"));
        }
    }
}

/// A module that is generated.
#[derive(Debug, Default)]
struct Node {
    items: TokenStream,
    names: Names,
    inner: BTreeMap<String, Node>,
}

impl Node {
    fn tokens(self) -> TokenStream {
        let items = self.items;
        let inner = self.inner.into_iter().map(|(name, node)| {
            let (text, name, items) = (format!(" What is in `{name}`."), ident(&name), node.tokens());
            quote!(#[doc = #text] pub mod #name { #items })
        });
        quote!(#items #(#inner)*)
    }
}

/// All modules.
#[derive(Debug)]
pub(super) struct Tree {
    root: Node,
    table: Ident,
}

impl Tree {
    /// One whose root has the table, of this name.
    pub(super) fn new(table: &Ident) -> Tree {
        Tree { root: Node::default(), table: table.clone() }
    }

    /// The table, seen from a module.
    pub(super) fn table_from(&self, scope: &Scope) -> TokenStream {
        scope.path_to(&Scope::default(), &self.table)
    }

    fn node(&mut self, scope: &Scope) -> &mut Node {
        scope.0.iter().fold(&mut self.root, |node, part| node.inner.entry(part.clone()).or_default())
    }

    /// The names of types in a module.
    pub(super) fn names(&mut self, scope: &Scope) -> &mut Names {
        &mut self.node(scope).names
    }

    pub(super) fn add(&mut self, scope: &Scope, items: TokenStream) {
        self.node(scope).items.extend(items);
    }

    pub(super) fn tokens(self) -> TokenStream {
        self.root.tokens()
    }
}
