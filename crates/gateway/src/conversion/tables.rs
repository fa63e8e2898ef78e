//! Tables that the operator gave: of methods whose processes need not tell theirs.

use std::collections::HashMap;

use tollfree_layout::table::Table;
use tollfree_processor::Processor;

use crate::conversion::converter::TableConverter;

/// The types of a method, as they stand in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MethodTypes {
    /// As `/acme.v1.Orders/Get`.
    pub(crate) path: String,
    /// Index of the request's type.
    pub(crate) request_idx: u32,
    /// Index of the reply's type.
    pub(crate) reply_idx: u32,
}

/// What is wrong with [`Tables`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} has the type {type_idx}, but its table has no more than {count}")]
pub(crate) struct TablesError {
    /// The method.
    pub(crate) path: String,
    /// The type that there is none of.
    pub(crate) type_idx: u32,
    /// How many types the table has.
    pub(crate) count: usize,
}

/// Tables of methods that the gateway has by itself. Backend connections whose handlers take objects of just these types get them from their
/// first call on, and are asked for nothing; all others tell their own tables.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    methods: HashMap<String, TableConverter>,
}

impl Tables {
    /// Methods whose types stand in one table.
    ///
    /// # Errors
    /// [`TablesError`] when a type is not in the table.
    pub(crate) fn new(
        table: Table,
        methods: impl IntoIterator<Item = MethodTypes>,
    ) -> Result<Tables, TablesError> {
        let count = table.types().len();
        let processor = Processor::new(table);
        let mut found = HashMap::new();
        for MethodTypes { path, request_idx, reply_idx } in methods {
            if let Some(&type_idx) = [request_idx, reply_idx].iter().find(|&&idx| idx as usize >= count) {
                return Err(TablesError { path, type_idx, count });
            }
            found.insert(path, TableConverter::of(&processor, request_idx, reply_idx));
        }
        Ok(Tables { methods: found })
    }

    /// How many methods there are.
    pub(crate) fn len(&self) -> usize {
        self.methods.len()
    }

    pub(super) fn get(&self, path: &str) -> Option<&TableConverter> {
        self.methods.get(path)
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &String> {
        self.methods.keys()
    }
}
