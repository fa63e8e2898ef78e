//! What is generated of one message so that prost's structs become views and builders, and builders structs.

use heck::ToSnakeCase;
use proc_macro2::{Ident, Literal, TokenStream};
use prost_types::DescriptorProto;
use quote::quote;
use tollfree_schema::{Kind, Label};

use super::bundled;
use super::message::{ViewField, members_of};
use super::naming::oneof_ident;
use super::tree::{Scope, field_ident, ident, type_ident};
use super::{Found, fields::Shape};

/// What prost has in place of a struct, unless it is asked for the well-known types.
pub(super) const PLAIN: [(&str, &str); 10] = [
    ("BoolValue", "bool"),
    ("BytesValue", "::prost::alloc::vec::Vec<u8>"),
    ("DoubleValue", "f64"),
    ("Empty", "()"),
    ("FloatValue", "f32"),
    ("Int32Value", "i32"),
    ("Int64Value", "i64"),
    ("StringValue", "::prost::alloc::string::String"),
    ("UInt32Value", "u32"),
    ("UInt64Value", "u64"),
];
const WELL_KNOWN: &str = ".google.protobuf";

/// Where prost's types stand.
#[derive(Debug)]
pub(crate) struct Structs {
    /// The module that has the packages' modules, seen from where views are included.
    root: String,
    /// Names that begin with the first stand in the second.
    externs: Vec<(String, String)>,
    has_well_known: bool,
}

/// A type of prost's, and the module of what is nested in it.
struct Struct {
    path: syn::Type,
    inner: String,
    is_plain: bool,
    /// The message's name below google.protobuf, if its struct is prost-types'.
    bundled: Option<String>,
}

impl Struct {
    /// Whether the struct has a field.
    fn has(&self, field: &ViewField<'_>) -> bool {
        let row = field.row;
        self.bundled.as_ref().is_none_or(|name| bundled::has_field(name, row.number, row.kind))
    }
}

impl Structs {
    /// # Errors
    /// In words, if the root is not a path.
    pub(crate) fn new(
        root: &str,
        externs: Vec<(String, String)>,
        has_well_known: bool,
    ) -> Result<Structs, String> {
        syn::parse_str::<syn::Path>(root)
            .map_err(|error| format!("the module of prost's types \"{root}\" is not a path: {error}"))?;
        Ok(Structs { root: root.to_owned(), externs, has_well_known })
    }

    /// The type of this name, seen from a module of views.
    fn of(&self, full_name: &str, from: &Scope) -> Result<Struct, String> {
        let name = format!(".{full_name}");
        let plain = PLAIN.iter().find(|(plain, _)| name == format!("{WELL_KNOWN}.{plain}"));
        let given = self.externs.iter().find(|(proto, _)| *proto == name);
        let (path, is_plain) = match (given, plain) {
            (Some((_, path)), _) => (path.clone(), false),
            (None, Some((_, path))) if !self.has_well_known => ((*path).to_owned(), true),
            _ => (self.below(&name, from), false),
        };
        let parsed = syn::parse_str(&path).map_err(|error| format!("\"{path}\" is not a type: {error}"))?;
        let around = path.rsplit_once("::").map_or("", |(around, _)| around);
        let last = full_name.rsplit('.').next().unwrap_or_default();
        let is_bundled = path.starts_with("::prost_types::") && !is_plain;
        let bundled = name.strip_prefix(WELL_KNOWN).filter(|_| is_bundled).map(|name| name[1..].to_owned());
        Ok(Struct { path: parsed, inner: format!("{around}::{}", snake(last)), is_plain, bundled })
    }

    /// The path of a type below the longest name that is known.
    fn below(&self, name: &str, from: &Scope) -> String {
        let well_known = (!self.has_well_known).then_some((WELL_KNOWN, "::prost_types"));
        let externs = self.externs.iter().map(|(proto, path)| (proto.as_str(), path.as_str()));
        let known = externs
            .chain(well_known)
            .filter(|(proto, _)| name.strip_prefix(proto).is_some_and(|rest| rest.starts_with('.')));
        let (root, rest) = match known.max_by_key(|(proto, _)| proto.len()) {
            Some((proto, path)) => (path.to_owned(), &name[proto.len()..]),
            None => (from.up_to_root(&self.root), name),
        };
        let mut parts: Vec<&str> = rest.split('.').filter(|part| !part.is_empty()).collect();
        let last = parts.pop().unwrap_or_default();
        let modules = parts.into_iter().map(snake);
        let path: Vec<String> = std::iter::once(root).chain(modules).collect();
        format!("{}::{}", path.join("::"), type_ident(last))
    }
}

/// A module's name.
fn snake(part: &str) -> String {
    ident(&part.to_snake_case()).to_string()
}

/// The implementation that leads to prost's struct and back; nothing for a message that prost-types has no struct of.
///
/// # Errors
/// In words, if the struct has no path.
pub(super) fn conversions(
    structs: &Structs,
    full_name: &str,
    found: &Found<'_, DescriptorProto>,
    fields: &[ViewField<'_>],
) -> Result<TokenStream, String> {
    let name = type_ident(found.descriptor.name());
    let held = structs.of(full_name, &found.scope)?;
    if held.bundled.as_ref().is_some_and(|name| !bundled::has_type(name)) {
        return Ok(TokenStream::new());
    }
    let Struct { path, inner, is_plain, .. } = &held;
    let (mut reads, mut writes) = (TokenStream::new(), TokenStream::new());
    for field in fields.iter().filter(|field| !field.is_member() && held.has(field)) {
        let (at, member) = (&field.at, &field.getter);
        let (read, write) = functions(field);
        // What stands for a wrapper is its only field.
        let (to, from) = if *is_plain {
            (quote!(&mut to), quote!(from))
        } else {
            (quote!(&mut to.#member), quote!(&from.#member))
        };
        reads.extend(quote!(view.#read(#name::#at, #to)?;));
        writes.extend(quote!(edit.#write(#name::#at, #from)?;));
    }
    for (idx, mut members) in members_of(fields) {
        members.retain(|field| held.has(field));
        let Some(oneof) = found.descriptor.oneof_decl.get(idx as usize) else { continue };
        let (member, case) =
            (field_ident(oneof.name()), format!("{inner}::{}", oneof_ident(found.descriptor, oneof.name())));
        let case: syn::Path =
            syn::parse_str(&case).map_err(|error| format!("\"{case}\" is not a type: {error}"))?;
        if members.is_empty() {
            continue;
        }
        let (read, write) = oneof_of(&name, &member, &case, &members);
        reads.extend(read);
        writes.extend(write);
    }
    let (typed, result) = (quote!(::tollfree_processor::typed), quote!(::core::result::Result));
    Ok(quote! {
        #[allow(clippy::all, deprecated, unused_mut, unused_variables)]
        impl #typed::InProst for #name {
            type Struct = #path;

            fn to_struct(view: #typed::Typed<'_, Self>) -> #result<Self::Struct, #typed::ProstError> {
                let mut to: Self::Struct = ::core::default::Default::default();
                #reads
                ::core::result::Result::Ok(to)
            }

            fn put_struct(
                edit: &mut #typed::EditOf<'_, Self>,
                from: &Self::Struct,
            ) -> #result<(), ::tollfree_processor::BuildError> {
                #writes
                ::core::result::Result::Ok(())
            }
        }
    })
}

/// The functions that read and write a field that is no member of a oneof.
fn functions(field: &ViewField<'_>) -> (Ident, Ident) {
    let is_message = field.row.kind == Kind::Message;
    let (read, write) = match (&field.shape, field.row.label) {
        (Shape::Pairs(..), _) => ("to_prost_map", "put_prost_map"),
        (Shape::Many(_), _) => ("to_prost_list", "put_prost_list"),
        (Shape::One(_), Label::Required) if is_message => ("to_prost_message", "put_prost"),
        (Shape::One(_), Label::Implicit | Label::Required) if !is_message => ("to_prost", "put_prost"),
        (Shape::One(_), _) => ("to_prost_option", "put_prost_option"),
    };
    (quote::format_ident!("{read}"), quote::format_ident!("{write}"))
}

fn oneof_of(
    name: &Ident,
    member: &Ident,
    case: &syn::Path,
    members: &[&ViewField<'_>],
) -> (TokenStream, TokenStream) {
    let Some(first) = members.first().map(|field| &field.at) else { return Default::default() };
    let arms = members.iter().map(|field| {
        let (at, number) = (&field.at, Literal::u32_unsuffixed(field.row.number));
        let variant = type_ident(field.descriptor.name());
        let read = quote! {
            #number => view.to_prost_case(#name::#at, #case::#variant, &mut to.#member)?,
        };
        let write = quote! {
            ::core::option::Option::Some(#case::#variant(value)) => edit.put_prost(#name::#at, value)?,
        };
        (read, write)
    });
    let (reads, writes): (Vec<TokenStream>, Vec<TokenStream>) = arms.unzip();
    let read = quote! {
        match view.case(#name::#first) {
            #(#reads)*
            _ => {}
        }
    };
    let write = quote! {
        match &from.#member {
            #(#writes)*
            ::core::option::Option::None => {}
        }
    };
    (read, write)
}
