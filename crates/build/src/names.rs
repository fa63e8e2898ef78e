//! Names in generated code, as tonic's generator has them.

use proc_macro2::{Ident, TokenStream};
use prost_build::{Method, Service};
use quote::{format_ident, quote};

use crate::service::Options;

/// The module of a service's client or server: every capital begins a word.
pub(crate) fn module(service: &str, end: &str) -> String {
    let mut name = String::with_capacity(service.len() + end.len() + 4);
    for letter in service.chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name + "_" + end
}

/// A function that a client has beside those of its service's methods, whose names are always had: it yields to them by an
/// underscore at its end.
pub(crate) fn own(service: &Service, name: &str) -> Ident {
    let mut own = name.to_owned();
    while service.methods.iter().any(|method| method.name == own) {
        own.push('_');
    }
    format_ident!("{own}")
}

/// `package.Service`, or `Service` where there is no package or none is wanted.
pub(crate) fn full(service: &Service, emit_package: bool) -> String {
    match service.package.as_str() {
        package if emit_package && !package.is_empty() => format!("{package}.{}", service.proto_name),
        _ => service.proto_name.clone(),
    }
}

/// A message's type, seen from a module beside it, or below `proto_path`; as it is where that is empty.
pub(crate) fn message(name: &str, proto_path: &str) -> Result<TokenStream, String> {
    let is_whole = proto_path.is_empty() || name.starts_with("::") || name.starts_with("crate::");
    // What prost has for wrappers and `Empty`.
    let is_built_in = matches!(name, "()" | "bool" | "i32" | "i64" | "u32" | "u64" | "f32" | "f64");
    let path = if is_whole || is_built_in { name.to_owned() } else { format!("{proto_path}::{name}") };
    let parsed: syn::Type =
        syn::parse_str(&path).map_err(|error| format!("\"{path}\" is not a type: {error}"))?;
    Ok(quote!(#parsed))
}

/// An object of a message, whose views stand in the module `views_path`.
fn object(proto_name: &str, views_path: &str) -> Result<TokenStream, String> {
    let path: syn::Path = syn::parse_str(views_path)
        .map_err(|error| format!("the module of views \"{views_path}\" is not a path: {error}"))?;
    let name = crate::views::path_of(proto_name.trim_start_matches('.'));
    Ok(quote!(::tollfree_processor::typed::Owned<#path::#name>))
}

/// Comments as documentation.
pub(crate) fn docs(lines: &[String]) -> TokenStream {
    let lines = lines.iter().map(|line| {
        // Text that is set in by four columns would be taken for a Rust example, and run.
        let text = line.trim_start_matches(' ');
        let indent = (line.len() - text.len()).clamp(1, 4);
        let text = format!("{}{text}", " ".repeat(indent));
        quote!(#[doc = #text])
    });
    quote!(#(#lines)*)
}

/// A method whose code is generated, with its types.
pub(crate) struct MethodNames<'a> {
    pub(crate) method: &'a Method,
    pub(crate) request: TokenStream,
    pub(crate) response: TokenStream,
    /// The stubs take objects, not prost's structs.
    pub(crate) objects: bool,
}

impl<'a> MethodNames<'a> {
    pub(crate) fn new(
        service: &Service,
        method: &'a Method,
        options: &Options,
    ) -> Result<MethodNames<'a>, String> {
        let objects = options.takes_objects(&full(service, true), &method.proto_name);
        let ty = |name: &str, proto_name: &str| {
            let ty = if objects {
                object(proto_name, &options.views_path)
            } else {
                message(name, &options.proto_path)
            };
            ty.map_err(|error| format!("method {}: {error}", method.proto_name))
        };
        let request = ty(&method.input_type, &method.input_proto_type)?;
        let response = ty(&method.output_type, &method.output_proto_type)?;
        Ok(MethodNames { method, request, response, objects })
    }

    /// How the method's messages are coded, if they are prost's structs or objects.
    pub(crate) fn coding(&self) -> TokenStream {
        if self.objects { quote!(::tollfree::direct::Objects) } else { quote!(::tollfree::direct::Prost) }
    }
}

/// Attributes for what a pattern matches, as in prost-build: `.` is everything, a name that begins with a dot is a
/// package and all below it, any other the end of a name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes {
    list: Vec<(String, String)>,
}

impl Attributes {
    pub(crate) fn push(&mut self, pattern: &str, attribute: &str) {
        self.list.push((pattern.to_owned(), attribute.to_owned()));
    }

    /// All that stand for a name.
    pub(crate) fn of(&self, name: &str) -> Result<TokenStream, String> {
        let mut tokens = TokenStream::new();
        for (_, attribute) in self.list.iter().filter(|(pattern, _)| matches(pattern, name)) {
            let parsed = parse(attribute)?;
            tokens.extend(quote!(#(#parsed)*));
        }
        Ok(tokens)
    }

    /// Whether all are attributes.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.list.iter().try_for_each(|(_, attribute)| parse(attribute).map(drop))
    }
}

fn parse(attribute: &str) -> Result<Vec<syn::Attribute>, String> {
    syn::parse::Parser::parse_str(syn::Attribute::parse_outer, attribute)
        .map_err(|error| format!("\"{attribute}\" is not an attribute: {error}"))
}

/// Whether the pattern, as prost-build has them, stands for this name.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let is_end = |long: &str, short: &str| {
        long.strip_suffix(short).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    match pattern.strip_prefix('.') {
        Some("") => true,
        Some(prefix) => {
            name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        }
        None => !pattern.is_empty() && is_end(name, pattern),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_named_as_tonic_names_them() {
        for (service, expected) in [
            ("Service", "service_client"),
            ("ThatHasALongName", "that_has_a_long_name_client"),
            ("greeter", "greeter_client"),
            ("ABCServiceX", "a_b_c_service_x_client"),
        ] {
            assert_eq!(module(service, "client"), expected);
        }
    }

    #[test]
    fn types_are_found_from_the_module_of_a_service() {
        for (name, expected) in [
            ("HelloRequest", "super :: HelloRequest"),
            ("super::other::Thing", "super :: super :: other :: Thing"),
            ("::prost_types::Timestamp", ":: prost_types :: Timestamp"),
            ("()", "()"),
            ("bool", "bool"),
            ("outer::r#Type", "super :: outer :: r#Type"),
        ] {
            assert_eq!(message(name, "super").unwrap().to_string(), expected);
        }
        assert!(message("not a type", "super").is_err());
    }

    #[test]
    fn patterns_match_as_in_prost() {
        for (pattern, name) in [(".", "a.B"), ("a.B", "a.B"), ("B", "a.B"), (".a", "a.B"), (".a.B", "a.B")] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a.B"), (".B", "a.B"), ("b", "a.B"), (".a.", "a.B"), (".x", "xy.B")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
        let mut attributes = Attributes::default();
        attributes.push("B", "#[cfg(feature = \"b\")] #[derive(PartialEq)]");
        attributes.push("C", "not one");
        assert_eq!(
            attributes.of("a.B").unwrap().to_string(),
            "# [cfg (feature = \"b\")] # [derive (PartialEq)]"
        );
        assert!(attributes.of("C").unwrap_err().contains("not one"));
    }
}
