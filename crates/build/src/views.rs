//! Generated views and builders: types that read and build messages in place, by the processor's table.
//!
//! All that is generated is one file, a tree of modules as packages and messages nest, with the table in it. Its types stand
//! beside prost's and need only `tollfree-processor`.

mod bundled;
mod fields;
mod message;
mod naming;
mod prost;
mod tree;

use std::collections::{HashMap, HashSet};

use proc_macro2::{Ident, Literal, TokenStream};
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet};
use quote::quote;
use tollfree_schema::{Schema, Table};

pub(crate) use self::bundled::has_type;
pub(crate) use self::prost::Structs;
use crate::check::{Complaints, number};
use naming::TakenTypes;
use tree::{Scope, Tree};

/// The path of a message's type in the tree, by its full name.
pub(crate) fn path_of(full_name: &str) -> TokenStream {
    let (around, name) = full_name.rsplit_once('.').unwrap_or(("", full_name));
    Scope::default().path_to(&Scope::of_package(around), &tree::type_ident(name))
}

/// The file that is written.
pub(crate) const FILE: &str = "views.rs";
/// What the table is called at the root of the tree.
const TABLE: &str = "ViewsTable";

/// A message or enum of the set: where it stands in its file, and in the tree.
struct Found<'a, D> {
    descriptor: &'a D,
    file: &'a FileDescriptorProto,
    /// Path in the file, as places in a source are told.
    path: Vec<i32>,
    scope: Scope,
    /// The names of a message's view, and of what changes it; an enum has its own name there.
    view: Ident,
    edit: Ident,
}

impl<'a, D> Found<'a, D> {
    fn new(
        descriptor: &'a D,
        name: &str,
        file: &'a FileDescriptorProto,
        path: Vec<i32>,
        scope: Scope,
    ) -> Self {
        let ident = tree::type_ident(name);
        Found { descriptor, file, path, scope, view: ident.clone(), edit: ident }
    }
}

/// All types of a set, by full name.
struct Types<'a> {
    table: Table,
    /// What the table is called.
    table_name: Ident,
    /// Where prost's types stand, if conversions are wanted.
    structs: Option<&'a Structs>,
    messages: HashMap<String, Found<'a, DescriptorProto>>,
    enums: HashMap<String, Found<'a, EnumDescriptorProto>>,
}

impl<'a> Types<'a> {
    /// The set's types, with the table of the same set as it was `encoded`.
    fn new(
        set: &'a FileDescriptorSet,
        encoded: &[u8],
        structs: Option<&'a Structs>,
    ) -> Result<Types<'a>, String> {
        let schema = Schema::from_descriptor_set(encoded).map_err(|error| error.to_string())?;
        let table = schema.compile().map_err(|error| error.to_string())?;
        let table_name = quote::format_ident!("{TABLE}");
        let mut types = Types { table, table_name, structs, messages: HashMap::new(), enums: HashMap::new() };
        for file in &set.file {
            let scope = Scope::of_package(file.package());
            types.enums_of(file, file.package(), &scope, &[number::FILE_ENUM], &file.enum_type);
            types.messages_of(file, file.package(), &scope, &[number::FILE_MESSAGE], &file.message_type);
        }
        types.name();
        Ok(types)
    }

    /// Names what views add to the proto's own types. Which are asked for does not matter, so that names stay as they are.
    fn name(&mut self) {
        let mut taken = TakenTypes::default();
        for found in self.enums.values() {
            taken.of(&found.scope).take(&found.view);
        }
        let is_entry =
            |found: &DescriptorProto| found.options.as_ref().is_some_and(|options| options.map_entry());
        for found in self.messages.values().filter(|found| !is_entry(found.descriptor)) {
            taken.of(&found.scope).take(&found.view);
            let inner = found.scope.inside(found.descriptor.name());
            for oneof in crate::check::real_oneofs(found.descriptor) {
                taken.of(&inner).take(&naming::oneof_ident(found.descriptor, oneof.name()));
            }
        }
        self.table_name = taken.of(&Scope::default()).yielding(TABLE);
        let mut messages: Vec<_> = self.messages.iter_mut().collect();
        messages.sort_unstable_by_key(|(name, _)| *name);
        for (_, found) in messages {
            let (name, taken) = (found.view.to_string(), taken.of(&found.scope));
            let name = name.trim_end_matches('_');
            (found.view, found.edit) =
                (taken.yielding(&format!("{name}View")), taken.yielding(&format!("{name}Mut")));
        }
    }

    fn messages_of(
        &mut self,
        file: &'a FileDescriptorProto,
        within: &str,
        scope: &Scope,
        path: &[i32],
        messages: &'a [DescriptorProto],
    ) {
        for (idx, descriptor) in (0..).zip(messages) {
            let full = joined(within, descriptor.name());
            let path = [path, &[idx]].concat();
            let inner = scope.inside(descriptor.name());
            let nested = [&path[..], &[number::MESSAGE_ENUM]].concat();
            self.enums_of(file, &full, &inner, &nested, &descriptor.enum_type);
            let nested = [&path[..], &[number::MESSAGE_NESTED]].concat();
            self.messages_of(file, &full, &inner, &nested, &descriptor.nested_type);
            self.messages.insert(full, Found::new(descriptor, descriptor.name(), file, path, scope.clone()));
        }
    }

    fn enums_of(
        &mut self,
        file: &'a FileDescriptorProto,
        within: &str,
        scope: &Scope,
        path: &[i32],
        enums: &'a [EnumDescriptorProto],
    ) {
        for (idx, descriptor) in (0..).zip(enums) {
            let path = [path, &[idx]].concat();
            let found = Found::new(descriptor, descriptor.name(), file, path, scope.clone());
            self.enums.insert(joined(within, descriptor.name()), found);
        }
    }

    /// The types that are asked for, and all that they reach; map entries are not among them.
    fn reached(&self, set: &FileDescriptorSet, patterns: &[String]) -> Vec<u32> {
        let is_wanted = |name: &str| patterns.iter().any(|pattern| crate::names::matches(pattern, name));
        let services = set.file.iter().flat_map(|file| file.service.iter().map(move |found| (file, found)));
        let asked: HashSet<&str> = services
            .filter(|(file, service)| is_wanted(&joined(file.package(), service.name())))
            .flat_map(|(_, service)| &service.method)
            .flat_map(|method| [method.input_type(), method.output_type()])
            .map(|name| name.trim_start_matches('.'))
            .collect();
        let name_of = |idx: u32| self.table.text(self.table.types()[idx as usize].name);
        let count = self.table.types().len() as u32;
        let mut reached: HashSet<u32> =
            (0..count).filter(|idx| is_wanted(name_of(*idx)) || asked.contains(name_of(*idx))).collect();
        let mut next: Vec<u32> = reached.iter().copied().collect();
        while let Some(idx) = next.pop() {
            for row in self.table.fields_of(idx) {
                let leads_on = row.kind == tollfree_schema::Kind::Message;
                if leads_on && reached.insert(row.aux_idx) {
                    next.push(row.aux_idx);
                }
            }
        }
        let is_entry = |idx: &u32| {
            let found = self.messages.get(name_of(*idx));
            found.is_none_or(|found| found.descriptor.options.as_ref().is_some_and(|it| it.map_entry()))
        };
        let mut reached: Vec<u32> = reached.into_iter().filter(|idx| !is_entry(idx)).collect();
        reached.sort_unstable();
        reached
    }
}

fn joined(within: &str, name: &str) -> String {
    if within.is_empty() { name.to_owned() } else { format!("{within}.{name}") }
}

/// The text of [`FILE`], for what the patterns match: `.` is everything, a name that begins with a dot is a package, message
/// or service and all below it, any other the end of a name.
///
/// # Errors
/// What cannot be generated, each with its place.
pub(crate) fn text(
    set: &FileDescriptorSet,
    encoded: &[u8],
    patterns: &[String],
    structs: Option<&Structs>,
) -> Result<String, String> {
    let types = Types::new(set, encoded, structs)?;
    let reached = types.reached(set, patterns);
    if reached.is_empty() {
        return Err(format!(
            "views({}) matches no message; name a package, message or service",
            patterns.join(", ")
        ));
    }
    let mut tree = Tree::new(&types.table_name);
    let mut complaints = Vec::new();
    let mut enums = HashSet::new();
    for type_idx in reached {
        let name = types.table.text(types.table.types()[type_idx as usize].name);
        let Some(found) = types.messages.get(name) else { continue };
        let mut own = Complaints::new(found.file);
        message::generate(&types, type_idx, found, &mut tree, &mut own);
        complaints.extend(own.list);
        let used = found.descriptor.field.iter().filter(|field| types.enums.contains_key(field_type(field)));
        enums.extend(used.map(|field| field_type(field).to_owned()));
        // An enum as a map's value stands in the entry.
        for entry in &found.descriptor.nested_type {
            let used = entry.field.iter().filter(|field| types.enums.contains_key(field_type(field)));
            enums.extend(used.map(|field| field_type(field).to_owned()));
        }
    }
    let mut enums: Vec<String> = enums.into_iter().collect();
    enums.sort_unstable();
    for name in enums {
        let found = &types.enums[&name];
        let mut own = Complaints::new(found.file);
        message::generate_enum(found, &mut tree, &mut own);
        complaints.extend(own.list);
    }
    if !complaints.is_empty() {
        return Err(complaints.join("\n"));
    }
    let tokens =
        [table(&types.table_name, types.table.blob()), tree.tokens()].into_iter().collect::<TokenStream>();
    let file = syn::parse2(tokens).map_err(|error| format!("views of {}: {error}", patterns.join(", ")))?;
    Ok(format!("// This file is @generated by tollfree-build.\n{}", prettyplease::unparse(&file)))
}

fn field_type(field: &prost_types::FieldDescriptorProto) -> &str {
    field.type_name().trim_start_matches('.')
}

fn table(name: &Ident, blob: &[u8]) -> TokenStream {
    let (len, bytes) = (blob.len(), Literal::byte_string(blob));
    quote! {
        /// The table of all messages here.
        #[derive(Clone, Copy, Debug)]
        pub enum #name {}

        impl ::tollfree_processor::typed::Compiled for #name {
            const BLOB: &'static [u8] = {
                static BYTES: [u8; #len] = *#bytes;
                &BYTES
            };

            fn table() -> &'static ::tollfree_processor::typed::StaticTable {
                static TABLE: ::tollfree_processor::typed::StaticTable =
                    ::tollfree_processor::typed::StaticTable::new(#name::BLOB);
                &TABLE
            }
        }
    }
}
