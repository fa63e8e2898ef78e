//! Tables of groups' methods, by the descriptor sets that the config names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollfree::gateway::read_file;
use tollfree_schema::Schema;

use crate::config::Config;
use crate::conversion::{MethodTypes, Tables};
use crate::reflection::Reflection;

/// The longest descriptor set that is read, in bytes.
const LEN_MAX: u64 = 64 << 20;

/// Those of each group that has some, and what answers for all of them.
#[derive(Default)]
pub(crate) struct GroupTables {
    by_group: BTreeMap<String, Arc<Tables>>,
    reflection: Option<Reflection>,
}

impl GroupTables {
    /// A group's, if it has some.
    pub(crate) fn get(&self, group: &str) -> Option<&Arc<Tables>> {
        self.by_group.get(group)
    }

    /// What answers calls of the reflection service, if any group has descriptors.
    pub(crate) fn reflection(&self) -> Option<&Reflection> {
        self.reflection.as_ref()
    }
}

/// A group's descriptor set is of no use.
#[derive(Debug, thiserror::Error)]
#[error("groups.{group}.descriptors: {file}: {problem}", file = .file.display())]
#[non_exhaustive]
pub struct DescriptorsError {
    /// The group.
    pub group: String,
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it, and what to do.
    pub problem: String,
}

/// Reads the descriptor sets of all groups, which blocks the thread.
///
/// # Errors
/// The first that is of no use.
pub(crate) fn read(config: &Config) -> Result<GroupTables, DescriptorsError> {
    let (mut tables, mut sets, mut services) = (GroupTables::default(), Vec::new(), BTreeSet::new());
    for (group, file) in described(config) {
        let (set, of_group) = read_one(group, file, &mut services)?;
        sets.push(set);
        tracing::info!(group, file = %file.display(), methods = of_group.len(), "its methods' tables were read");
        tables.by_group.insert(group.clone(), Arc::new(of_group));
    }
    if !sets.is_empty() {
        tables.reflection = Reflection::of(&sets, &services).ok();
    }
    Ok(tables)
}

/// Reads the descriptor sets of all groups, which blocks the thread, and gives all that are of no use.
pub(crate) fn check(config: &Config) -> Vec<DescriptorsError> {
    described(config).filter_map(|(group, file)| read_one(group, file, &mut BTreeSet::new()).err()).collect()
}

fn described(config: &Config) -> impl Iterator<Item = (&String, &PathBuf)> {
    config.groups.iter().filter_map(|(name, group)| Some((name, group.descriptors.as_ref()?)))
}

/// A group's descriptor set and its tables; its services are added to others.
fn read_one(
    group: &str,
    file: &Path,
    services: &mut BTreeSet<String>,
) -> Result<(Vec<u8>, Tables), DescriptorsError> {
    let wrong = |problem| DescriptorsError { group: group.to_owned(), file: file.to_owned(), problem };
    let set = read_file(file, LEN_MAX).map_err(|error| wrong(error.to_string()))?;
    let of_group = of_set(&set, services).map_err(wrong)?;
    // Here, where the group and its file are known.
    Reflection::of(std::slice::from_ref(&set), services).map_err(wrong)?;
    Ok((set, of_group))
}

/// The tables of a set, whose services are added to others.
fn of_set(set: &[u8], services: &mut BTreeSet<String>) -> Result<Tables, String> {
    let schema = Schema::from_descriptor_set(set).map_err(|error| {
        format!("{error}; write it with `protoc --include_imports --descriptor_set_out` or `buf build -o`")
    })?;
    let table = schema.compile().map_err(|error| error.to_string())?;
    let mut methods = Vec::new();
    for service in &schema.services {
        services.insert(service.name.to_string());
        for method in &service.methods {
            // A table has no more types than this counts.
            let [request_idx, reply_idx] = [method.input_idx, method.output_idx].map(|idx| idx as u32);
            let path = format!("/{}/{}", service.name, method.name);
            methods.push(MethodTypes { path, request_idx, reply_idx });
        }
    }
    if methods.is_empty() {
        return Err("it has no service".into());
    }
    Tables::new(table, methods).map_err(|error| error.to_string())
}
