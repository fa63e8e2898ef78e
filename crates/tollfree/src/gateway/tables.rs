//! Tables that a gateway's operator gave: of methods whose processes need not tell theirs.

use std::collections::HashMap;

use tollfree_layout::table::Table;
use tollfree_processor::Processor;

use crate::message::translation::Translation;

/// The types of a method, as they stand in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodTypes {
    /// As `/acme.v1.Orders/Get`.
    pub path: String,
    /// Index of the request's type.
    pub request_idx: u32,
    /// Index of the reply's type.
    pub reply_idx: u32,
}

/// What is wrong with [`Tables`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} has the type {type_idx}, but its table has no more than {count}")]
pub struct TablesError {
    /// The method.
    pub path: String,
    /// The type that there is none of.
    pub type_idx: u32,
    /// How many types the table has.
    pub count: usize,
}

/// Tables of methods that a gateway has by itself. Backend connections whose handlers take objects of just these types get them from their
/// first call on, and are asked for nothing; all others tell their own tables.
#[derive(Debug, Default)]
pub struct Tables {
    methods: HashMap<String, Translation>,
}

impl Tables {
    /// Methods whose types stand in one table.
    ///
    /// # Errors
    /// [`TablesError`] when a type is not in the table.
    pub fn new(table: Table, methods: impl IntoIterator<Item = MethodTypes>) -> Result<Tables, TablesError> {
        let count = table.types().len();
        let processor = Processor::new(table);
        let mut found = HashMap::new();
        for MethodTypes { path, request_idx, reply_idx } in methods {
            if let Some(&type_idx) = [request_idx, reply_idx].iter().find(|&&idx| idx as usize >= count) {
                return Err(TablesError { path, type_idx, count });
            }
            found.insert(path, Translation::of(&processor, request_idx, reply_idx));
        }
        Ok(Tables { methods: found })
    }

    /// How many methods there are.
    pub fn len(&self) -> usize {
        self.methods.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.methods.is_empty()
    }

    pub(super) fn get(&self, path: &str) -> Option<&Translation> {
        self.methods.get(path)
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &String> {
        self.methods.keys()
    }
}
