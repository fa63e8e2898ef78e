//! What is generated of one message: its type, a view, an editor, and an enum for each oneof.

use std::collections::BTreeMap;

use heck::ToUpperCamelCase;
use proc_macro2::{Ident, Literal, TokenStream};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto};
use quote::{format_ident, quote};
use tollfree_schema::{FieldRow, Kind, Label};

use super::fields::{Shape, Value, shape};
use super::naming::{FieldNames, Taken, name_functions, oneof_ident};
use super::tree::{Names, Scope, Tree, field_ident, ident, type_ident};
use super::{Found, Types};
use crate::check::{Complaints, number};

/// A field with all that is said of it.
pub(super) struct ViewField<'a> {
    pub(super) row: &'a FieldRow,
    pub(super) descriptor: &'a FieldDescriptorProto,
    /// Its place among its type's fields.
    place: u32,
    pub(super) getter: Ident,
    pub(super) names: FieldNames,
    /// The constant that says where it lies.
    pub(super) at: Ident,
    pub(super) shape: Shape,
}

impl ViewField<'_> {
    /// Whether it is one of several in a oneof. (`optional` of proto3 is told as a oneof of one.)
    pub(super) fn is_member(&self) -> bool {
        self.descriptor.oneof_index.is_some() && !self.descriptor.proto3_optional()
    }
}

/// The members of each oneof.
pub(super) fn members_of<'f, 'a>(fields: &'f [ViewField<'a>]) -> BTreeMap<i32, Vec<&'f ViewField<'a>>> {
    let mut members: BTreeMap<i32, Vec<&ViewField<'_>>> = BTreeMap::new();
    for field in fields.iter().filter(|field| field.is_member()) {
        if let Some(idx) = field.descriptor.oneof_index {
            members.entry(idx).or_default().push(field);
        }
    }
    members
}

/// Functions that are generated for a message.
#[derive(Default)]
struct Functions {
    view: TokenStream,
    edit: TokenStream,
}

/// Generates a message into the tree.
pub(super) fn generate(
    types: &Types<'_>,
    type_idx: u32,
    found: &Found<'_, DescriptorProto>,
    tree: &mut Tree,
    complaints: &mut Complaints<'_>,
) {
    let descriptor = found.descriptor;
    let name = type_ident(descriptor.name());
    let (view, edit) = (&found.view, &found.edit);
    let what = format!("message {}", descriptor.name());
    tree.names(&found.scope).take(&name, &what, &found.path, complaints);
    let fields = fields(types, type_idx, found);
    let mut functions = Functions::default();
    for field in &fields {
        match &field.shape {
            Shape::One(value) => one(&name, field, value, &mut functions),
            Shape::Many(_) | Shape::Pairs(..) => many(&name, field, &mut functions),
        }
    }
    functions.view.extend(oneofs(&name, &fields, found, tree, types, complaints));
    let places = fields.iter().map(|field| constant(&name, field));
    let Functions { view: readers, edit: writers } = functions;
    let table = tree.table_from(&found.scope);
    let full = types.table.text(types.table.types()[type_idx as usize].name);
    if let Some(structs) = types.structs {
        match super::prost::conversions(structs, full, found, &fields) {
            Ok(items) => tree.add(&found.scope, items),
            Err(error) => complaints.push(&found.path, error),
        }
    }
    let (doc, view_doc, edit_doc) =
        (format!(" The message `{full}`."), format!(" Reads a `{full}`."), format!(" Changes a `{full}`."));
    let items = quote! {
        #[doc = #doc]
        #[derive(Clone, Copy, Debug)]
        pub enum #name {}

        #[allow(clippy::all, dead_code)]
        impl #name {
            #(#places)*
        }

        impl ::tollfree_processor::typed::Message for #name {
            type Compiled = #table;
            const TYPE_IDX: u32 = #type_idx;
            type View<'a> = #view<'a>;
            type Mut<'d> = #edit<'d>;
        }

        #[doc = #view_doc]
        #[derive(Clone, Copy, PartialEq)]
        pub struct #view<'a>(::tollfree_processor::typed::Typed<'a, #name>);

        #[allow(clippy::all, dead_code)]
        impl<'a> #view<'a> {
            #readers
        }

        #[doc = #edit_doc]
        pub struct #edit<'d>(::tollfree_processor::typed::EditOf<'d, #name>);

        #[allow(clippy::all, dead_code)]
        impl<'d> #edit<'d> {
            #writers
        }
    };
    tree.add(&found.scope, items);
    tree.add(&found.scope, traits(&name, view, edit));
}

fn traits(name: &Ident, view: &Ident, edit: &Ident) -> TokenStream {
    let typed = quote!(::tollfree_processor::typed);
    quote! {
        impl<'a> ::core::convert::From<#typed::Typed<'a, #name>> for #view<'a> {
            #[inline(always)]
            fn from(typed: #typed::Typed<'a, #name>) -> Self {
                #view(typed)
            }
        }

        impl<'a> ::core::convert::From<#view<'a>> for #typed::Typed<'a, #name> {
            #[inline(always)]
            fn from(view: #view<'a>) -> Self {
                view.0
            }
        }

        impl ::core::fmt::Debug for #view<'_> {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl<'a> #typed::MessageView<'a> for #view<'a> {
            type Message = #name;
        }

        impl<'d> ::core::convert::From<#typed::EditOf<'d, #name>> for #edit<'d> {
            #[inline(always)]
            fn from(edit: #typed::EditOf<'d, #name>) -> Self {
                #edit(edit)
            }
        }

        impl ::core::fmt::Debug for #edit<'_> {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl<'d> #typed::MessageMut<'d> for #edit<'d> {
            type Message = #name;

            fn message(&self) -> &#typed::EditOf<'d, #name> {
                &self.0
            }

            fn message_mut(&mut self) -> &mut #typed::EditOf<'d, #name> {
                &mut self.0
            }
        }
    }
}

fn fields<'a>(types: &'a Types<'_>, type_idx: u32, found: &Found<'a, DescriptorProto>) -> Vec<ViewField<'a>> {
    let rows = types.table.fields_of(type_idx);
    let of = |descriptor: &'a FieldDescriptorProto| {
        let place = rows.iter().position(|row| row.number as i32 == descriptor.number())?;
        Some(ViewField {
            row: &rows[place],
            descriptor,
            place: place as u32,
            getter: field_ident(descriptor.name()),
            names: FieldNames::default(),
            at: format_ident!("FIELD_{}", descriptor.number().unsigned_abs()),
            shape: shape(types, &rows[place], descriptor, &found.scope),
        })
    };
    let mut fields: Vec<ViewField<'a>> = found.descriptor.field.iter().filter_map(of).collect();
    let members: Vec<i32> = members_of(&fields).into_keys().collect();
    let oneofs = members.iter().filter_map(|idx| found.descriptor.oneof_decl.get(*idx as usize));
    name_functions(&mut fields, oneofs.map(|oneof| oneof.name()));
    fields
}

/// Where the field lies.
fn constant(name: &Ident, field: &ViewField<'_>) -> TokenStream {
    let (at, place) = (&field.at, Literal::u32_unsuffixed(field.place));
    let (word, of) = match &field.shape {
        Shape::One(Value { kind, .. }) => ("One", quote!(#kind)),
        Shape::Many(Value { kind, .. }) => ("Many", quote!(#kind)),
        Shape::Pairs(key, value) => {
            let (key, value) = (&key.kind, &value.kind);
            ("Pairs", quote!(#key, #value))
        }
    };
    let word = format_ident!("{word}");
    let typed = quote!(::tollfree_processor::typed);
    quote!(const #at: #typed::#word<#name, #of> = #typed::#word::new(#place);)
}

/// A field of at most one value.
fn one(name: &Ident, field: &ViewField<'_>, value: &Value, to: &mut Functions) {
    let (at, getter, proto) = (&field.at, &field.getter, field.descriptor.name());
    let ty = value.ty(&quote!('a));
    let is_message = field.row.kind == Kind::Message;
    let doc = match (is_message, field.row.label) {
        (true, _) => format!(" The message `{proto}`, if it is there."),
        (false, Label::Implicit) => format!(" The field `{proto}`."),
        (false, _) => format!(" The field `{proto}`, or its default."),
    };
    let (result, read) = if is_message {
        (quote!(::core::option::Option<#ty>), quote!(find))
    } else {
        (ty.clone(), quote!(get))
    };
    let function = quote! {
        #[doc = #doc]
        #[must_use]
        #[inline(always)]
        pub fn #getter(self) -> #result {
            self.0.#read(#name::#at)
        }
    };
    to.view.extend(function);
    if let Some(has) = &field.names.has {
        let doc = format!(" Whether `{proto}` is there.");
        let function = quote! {
            #[doc = #doc]
            #[must_use]
            #[inline(always)]
            pub fn #has(self) -> bool {
                self.0.has(#name::#at)
            }
        };
        to.view.extend(function);
    }
    if let Some(opt) = &field.names.opt {
        let doc = format!(" The field `{proto}`, if it is there.");
        let function = quote! {
            #[doc = #doc]
            #[must_use]
            #[inline(always)]
            pub fn #opt(self) -> ::core::option::Option<#ty> {
                self.0.find(#name::#at)
            }
        };
        to.view.extend(function);
    }
    let (set, doc) = (&field.names.set, format!(" Sets `{proto}`."));
    let given = value.ty(&quote!('_));
    let function = quote! {
        #[doc = #doc]
        ///
        /// # Errors
        /// If there is no room; the field holds what it did.
        #[inline]
        pub fn #set(&mut self, value: #given) -> ::core::result::Result<(), ::tollfree_processor::BuildError> {
            self.0.set(#name::#at, value)
        }
    };
    to.edit.extend(function);
    if let (Some(edits), Some(change)) = (&value.edits, &field.names.change) {
        let doc = format!(" The message `{proto}`, which is there from now on.");
        let function = quote! {
            #[doc = #doc]
            ///
            /// # Errors
            /// If there is no room; the field holds what it did.
            #[inline]
            pub fn #change(&mut self) -> ::core::result::Result<#edits<'_>, ::tollfree_processor::BuildError> {
                self.0.message(#name::#at)
            }
        };
        to.edit.extend(function);
    }
    clear(name, field, "clear", to);
}

fn clear(name: &Ident, field: &ViewField<'_>, function: &str, to: &mut Functions) {
    let (at, proto, function) = (&field.at, field.descriptor.name(), format_ident!("{function}"));
    let (clear, doc) = (&field.names.clear, format!(" Makes `{proto}` absent."));
    let function = quote! {
        #[doc = #doc]
        pub fn #clear(&mut self) {
            self.0.#function(#name::#at);
        }
    };
    to.edit.extend(function);
}

/// A list or map.
fn many(name: &Ident, field: &ViewField<'_>, to: &mut Functions) {
    let (at, getter, proto) = (&field.at, &field.getter, field.descriptor.name());
    let typed = quote!(::tollfree_processor::typed);
    let (read, view, edit, cleared, what) = match &field.shape {
        Shape::Pairs(key, value) => {
            let (key, value) = (&key.kind, &value.kind);
            let (view, edit) =
                (quote!(#typed::MapView<'a, #key, #value>), quote!(#typed::MapMut<'_, #key, #value>));
            (quote!(map), view, edit, "clear_map", "map")
        }
        Shape::One(Value { kind, .. }) | Shape::Many(Value { kind, .. }) => {
            let (view, edit) = (quote!(#typed::ListView<'a, #kind>), quote!(#typed::ListMut<'_, #kind>));
            (quote!(list), view, edit, "clear_list", "list")
        }
    };
    let doc = format!(" The {what} `{proto}`.");
    let function = quote! {
        #[doc = #doc]
        #[must_use]
        #[inline(always)]
        pub fn #getter(self) -> #view {
            self.0.#read(#name::#at)
        }
    };
    to.view.extend(function);
    let (change, doc) = (&field.names.change, format!(" The {what} `{proto}`, to be added to."));
    let function = quote! {
        #[doc = #doc]
        ///
        /// # Errors
        /// If messages nest too deep.
        #[inline]
        pub fn #change(&mut self) -> ::core::result::Result<#edit, ::tollfree_processor::BuildError> {
            self.0.#read(#name::#at)
        }
    };
    to.edit.extend(function);
    clear(name, field, cleared, to);
}

/// An enum for each oneof, and how it is read.
fn oneofs(
    name: &Ident,
    fields: &[ViewField<'_>],
    found: &Found<'_, DescriptorProto>,
    tree: &mut Tree,
    types: &Types<'_>,
    complaints: &mut Complaints<'_>,
) -> TokenStream {
    let mut readers = TokenStream::new();
    let inner = found.scope.inside(found.descriptor.name());
    for (idx, members) in members_of(fields) {
        let Some(oneof) = found.descriptor.oneof_decl.get(idx as usize) else { continue };
        let path = [&found.path[..], &[number::MESSAGE_ONEOF, idx]].concat();
        let (case, getter) = (oneof_ident(found.descriptor, oneof.name()), field_ident(oneof.name()));
        let borrows = members.iter().any(|field| matches!(&field.shape, Shape::One(value) if value.borrows));
        let lifetime = borrows.then(|| quote!(<'a>));
        let what = format!("oneof {}", oneof.name());
        tree.names(&inner).take(&case, &what, &path, complaints);
        let (not_set, variants) = variants(types, &members, &inner);
        let doc = format!(" What `{}` can hold.", oneof.name());
        let items = quote! {
            #[doc = #doc]
            #[allow(clippy::all)]
            #[derive(Clone, Copy, Debug, PartialEq)]
            pub enum #case #lifetime {
                /// Nothing.
                #not_set,
                #variants
            }
        };
        tree.add(&inner, items);
        let case = found.scope.path_to(&inner, &case);
        let arms = members.iter().map(|field| {
            let (at, number) = (&field.at, Literal::u32_unsuffixed(field.row.number));
            let variant = type_ident(field.descriptor.name());
            quote!(#number => self.0.find(#name::#at).map_or(#case::#not_set, #case::#variant),)
        });
        let Some(first) = members.first() else { continue };
        let (at, doc) = (&first.at, format!(" What `{}` holds.", oneof.name()));
        let function = quote! {
            #[doc = #doc]
            #[must_use]
            #[inline]
            pub fn #getter(self) -> #case #lifetime {
                match self.0.case(#name::#at) {
                    #(#arms)*
                    _ => #case::#not_set,
                }
            }
        };
        readers.extend(function);
    }
    readers
}

/// The variant of a oneof of which no member is set, and those of its members.
fn variants(types: &Types<'_>, members: &[&ViewField<'_>], inner: &Scope) -> (Ident, TokenStream) {
    let mut names = Taken::default();
    let mut variants = TokenStream::new();
    for field in members {
        let (variant, proto) = (type_ident(field.descriptor.name()), field.descriptor.name());
        names.take(&variant);
        // Types are named from the module of the enum.
        if let Shape::One(value) = shape(types, field.row, field.descriptor, inner) {
            let (ty, doc) = (value.ty(&quote!('a)), format!(" The field `{proto}`."));
            variants.extend(quote!(#[doc = #doc] #variant(#ty),));
        }
    }
    (names.yielding("NotSet"), variants)
}

/// Generates an enum into the tree: a number, for any may come, with constants.
pub(super) fn generate_enum(
    found: &Found<'_, EnumDescriptorProto>,
    tree: &mut Tree,
    complaints: &mut Complaints<'_>,
) {
    let (proto, name) = (found.descriptor.name(), type_ident(found.descriptor.name()));
    tree.names(&found.scope).take(&name, &format!("enum {proto}"), &found.path, complaints);
    let mut constants = Names::default();
    let (mut values, mut known) = (TokenStream::new(), TokenStream::new());
    let mut numbers = std::collections::HashSet::new();
    for (idx, value) in (0..).zip(&found.descriptor.value) {
        let (proto, constant) = (value.name(), ident(value.name()));
        let path = [&found.path[..], &[number::ENUM_VALUE, idx]].concat();
        constants.take(&constant, &format!("value {proto}"), &path, complaints);
        let (number, doc) = (Literal::i32_unsuffixed(value.number()), format!(" The value `{proto}`."));
        values.extend(quote!(#[doc = #doc] pub const #constant: #name = #name(#number);));
        if numbers.insert(value.number()) {
            known.extend(quote!(#number => #proto,));
        }
    }
    let (doc, text) = (
        format!(" The enum `{proto}`: any number, of which some have names."),
        format!("{}({{}})", found.descriptor.name().to_upper_camel_case()),
    );
    tree.add(
        &found.scope,
        quote! {
            #[doc = #doc]
            #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct #name(pub i32);

            #[allow(non_upper_case_globals, clippy::all, dead_code)]
            impl #name {
                #values
            }

            impl ::core::convert::From<i32> for #name {
                #[inline(always)]
                fn from(number: i32) -> Self {
                    #name(number)
                }
            }

            impl ::core::convert::From<#name> for i32 {
                #[inline(always)]
                fn from(value: #name) -> i32 {
                    value.0
                }
            }

            impl ::core::fmt::Debug for #name {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    let name = match self.0 {
                        #known
                        other => return write!(f, #text, other),
                    };
                    f.write_str(name)
                }
            }
        },
    );
}
