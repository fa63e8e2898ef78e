//! With the feature `generated`: generates views and builders of all test messages, and of each message a function that builds it
//! anew by all its getters and setters. Without it there is nothing to do.

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "generated")]
    generated::write()?;
    Ok(())
}

#[cfg(feature = "generated")]
mod generated {
    use std::collections::{BTreeSet, HashMap};
    use std::fmt::Write as _;
    use std::io::{Error, Result};
    use std::path::Path;

    use heck::{ToSnakeCase, ToUpperCamelCase};
    use prost::Message as _;
    use prost_types::DescriptorProto;
    use tollfree_build::FileDescriptorSet;
    use tollfree_schema::{FieldRow, Kind, Label, Schema, Table};

    /// The descriptor set of the messages, which the suite's runner gets, too.
    const SET: &str = "TOLLFREE_CONFORMANCE_SET";
    /// The package that all test messages are in, or below.
    const PACKAGE: &str = "protobuf_test_messages.";

    /// Views into `views.rs`, functions into `rebuild.rs`.
    pub(super) fn write() -> Result<()> {
        println!("cargo::rerun-if-env-changed={SET}");
        let path = std::env::var_os(SET).ok_or_else(|| {
            Error::other(format!(
                "set {SET} to the path of the suite's descriptor set; `make conformance` does"
            ))
        })?;
        println!("cargo::rerun-if-changed={}", Path::new(&path).display());
        let set = std::fs::read(&path)?;
        tollfree_build::configure().views(".protobuf_test_messages").compile_descriptor_set(&set)?;
        let out = std::env::var_os("OUT_DIR").ok_or_else(|| Error::other("cargo sets OUT_DIR"))?;
        let functions = Functions::new(&set)?.text();
        std::fs::write(Path::new(&out).join("rebuild.rs"), functions)
    }

    struct Functions {
        table: Table,
        /// The oneof that a field belongs to, by its message and number, for each field that a message has itself: an extension
        /// is none.
        fields: HashMap<(String, u32), Option<String>>,
    }

    impl Functions {
        fn new(set: &[u8]) -> Result<Functions> {
            let table = Schema::from_descriptor_set(set).and_then(|schema| schema.compile());
            let mut functions = Functions { table: table.map_err(Error::other)?, fields: HashMap::new() };
            for file in &FileDescriptorSet::decode(set)?.file {
                functions.add(file.package(), &file.message_type);
            }
            Ok(functions)
        }

        fn add(&mut self, within: &str, messages: &[DescriptorProto]) {
            for message in messages {
                let name = format!("{within}.{}", message.name());
                for field in &message.field {
                    let idx = field.oneof_index.filter(|_| !field.proto3_optional());
                    let oneof = idx.map(|idx| message.oneof_decl[idx as usize].name().to_owned());
                    self.fields.insert((name.clone(), field.number() as u32), oneof);
                }
                self.add(&name, &message.nested_type);
            }
        }

        fn name(&self, type_idx: u32) -> &str {
            self.table.text(self.table.types()[type_idx as usize].name)
        }

        fn own_fields(&self, type_idx: u32) -> impl Iterator<Item = (&FieldRow, Option<&String>)> {
            let name = self.name(type_idx);
            let rows = self.table.fields_of(type_idx).iter();
            rows.filter_map(move |row| {
                let oneof = self.fields.get(&(name.to_owned(), row.number))?;
                Some((row, oneof.as_ref()))
            })
        }

        /// The test messages, and what they lead to.
        fn reached(&self) -> BTreeSet<u32> {
            let mut next: Vec<u32> = (0..self.table.types().len() as u32)
                .filter(|idx| self.name(*idx).starts_with(PACKAGE))
                .collect();
            let mut reached = BTreeSet::new();
            while let Some(idx) = next.pop() {
                if !self.is_entry(idx) && !reached.insert(idx) {
                    continue;
                }
                let messages = self.own_fields(idx).filter(|(row, _)| row.kind == Kind::Message);
                next.extend(messages.map(|(row, _)| row.aux_idx).filter(|idx| !reached.contains(idx)));
            }
            reached
        }

        /// Whether the message is an entry of a map: no list of others has a name like that.
        fn is_entry(&self, type_idx: u32) -> bool {
            let mut rows = (0..self.table.types().len() as u32).flat_map(|idx| self.table.fields_of(idx));
            rows.any(|row| row.label == Label::Map && row.aux_idx == type_idx)
        }

        fn text(&self) -> String {
            let mut out = String::new();
            let reached = self.reached();
            let _ = writeln!(
                out,
                "pub(super) fn again(engine: &mut Engine, name: &str, input: &[u8], form: Form) -> Option<Answer> {{"
            );
            let _ = writeln!(out, "Some(match name {{");
            for idx in &reached {
                let name = self.name(*idx);
                let _ = writeln!(
                    out,
                    "{name:?} => engine.rebuilt::<{}>(input, form, type_{idx}),",
                    path(name, "")
                );
            }
            out.push_str("_ => return None })}\n");
            for idx in reached {
                self.function(idx, &mut out);
            }
            out
        }

        fn function(&self, type_idx: u32, out: &mut String) {
            let name = self.name(type_idx);
            let (view, edit) = (path(name, "View"), path(name, "Mut"));
            let _ = writeln!(out, "fn type_{type_idx}(from: {view}<'_>, to: &mut {edit}<'_>) -> Built {{");
            // All is there, and what no setter sets stays: unknown fields and extensions.
            let _ = writeln!(out, "MessageMut::copy_from(to, from)?;");
            let mut oneofs: Vec<(&String, Vec<&FieldRow>)> = Vec::new();
            for (row, oneof) in self.own_fields(type_idx) {
                let _ = writeln!(out, "to.clear_{}();", self.field(row));
                let Some(oneof) = oneof else { continue };
                match oneofs.iter_mut().find(|(known, _)| *known == oneof) {
                    Some((_, members)) => members.push(row),
                    None => oneofs.push((oneof, vec![row])),
                }
            }
            for (row, _) in self.own_fields(type_idx).filter(|(_, oneof)| oneof.is_none()) {
                let _ = writeln!(out, "{}", self.step(row));
            }
            for (oneof, members) in oneofs {
                let case = format!("{}::{}", path(name, "").to_snake_path(), oneof.to_upper_camel_case());
                let _ = writeln!(out, "match from.{}() {{ {case}::NotSet => {{}}", oneof.to_snake_case());
                for row in members {
                    let (variant, field) = (self.table.text(row.name).to_upper_camel_case(), self.field(row));
                    let value = match row.kind {
                        Kind::Message => format!("type_{}(value, &mut to.{field}_mut()?)?", row.aux_idx),
                        _ => format!("to.set_{field}(value)?"),
                    };
                    let _ = writeln!(out, "{case}::{variant}(value) => {value},");
                }
                out.push_str("}\n");
            }
            out.push_str("Ok(())}\n");
        }

        fn field(&self, row: &FieldRow) -> String {
            self.table.text(row.name).to_snake_case()
        }

        /// A field that is no member of a oneof.
        fn step(&self, row: &FieldRow) -> String {
            let (f, to) = (self.field(row), row.aux_idx);
            match (row.label, row.kind) {
                (Label::Map, _) => {
                    let value = &self.table.fields_of(to)[1];
                    let put = match value.kind {
                        Kind::Message => {
                            format!("type_{}(value, &mut to.{f}_mut()?.insert_new(key)?)?", value.aux_idx)
                        }
                        _ => format!("to.{f}_mut()?.insert(key, value)?"),
                    };
                    format!("for (key, value) in from.{f}() {{ {put}; }}")
                }
                (Label::List, Kind::Message) => {
                    format!(
                        "for value in from.{f}() {{ type_{to}(value, &mut to.{f}_mut()?.push_new()?)?; }}"
                    )
                }
                (Label::List, _) => format!("to.{f}_mut()?.extend(from.{f}())?;"),
                (_, Kind::Message) => {
                    format!("if let Some(value) = from.{f}() {{ type_{to}(value, &mut to.{f}_mut()?)?; }}")
                }
                (Label::Implicit, _) => format!("to.set_{f}(from.{f}())?;"),
                _ => {
                    let set = format!("if from.has_{f}() {{ to.set_{f}(from.{f}())?; }}");
                    format!("{set} assert_eq!(from.{f}_opt().is_some(), from.has_{f}());")
                }
            }
        }
    }

    /// The type of a message in the modules of views.
    fn path(full_name: &str, end: &str) -> String {
        let (around, name) = full_name.rsplit_once('.').unwrap_or(("", full_name));
        let modules: String = around.split('.').map(|part| format!("{}::", part.to_snake_case())).collect();
        format!("views::{modules}{}{end}", name.to_upper_camel_case())
    }

    trait SnakePath {
        fn to_snake_path(&self) -> String;
    }

    impl SnakePath for String {
        /// The module of what is nested in a type.
        fn to_snake_path(&self) -> String {
            let (around, name) = self.rsplit_once("::").unwrap_or(("", self));
            format!("{around}::{}", name.to_snake_case())
        }
    }
}
