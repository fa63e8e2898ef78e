//! Edition features: what a file, message, field, oneof or enum says, and what it inherits.

use crate::SchemaError;
use crate::descriptor::File;

/// Numbers of `google.protobuf.FeatureSet` fields and of their values, as descriptor.proto has them.
mod number {
    pub(super) const FIELD_PRESENCE: u32 = 1;
    pub(super) const ENUM_TYPE: u32 = 2;
    pub(super) const REPEATED_ENCODING: u32 = 3;
    pub(super) const UTF8_VALIDATION: u32 = 4;
    pub(super) const MESSAGE_ENCODING: u32 = 5;
    pub(super) const IMPLICIT: u64 = 2;
    pub(super) const LEGACY_REQUIRED: u64 = 3;
    pub(super) const CLOSED: u64 = 2;
    pub(super) const PACKED: u64 = 1;
    pub(super) const VERIFY: u64 = 2;
    pub(super) const DELIMITED: u64 = 2;
    pub(super) const EDITION_PROTO2: u64 = 998;
    pub(super) const EDITION_PROTO3: u64 = 999;
    pub(super) const EDITION_2023: u64 = 1000;
    pub(super) const EDITION_2024: u64 = 1001;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Explicit,
    Implicit,
    Required,
}

/// Features as one place states them; what is absent is inherited.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct FeatureSet {
    presence: Option<Presence>,
    closed: Option<bool>,
    packed: Option<bool>,
    utf8: Option<bool>,
    delimited: Option<bool>,
}

impl FeatureSet {
    /// Takes in one field of a `FeatureSet`; 0 means "unknown" in each and is inherited.
    pub(crate) fn set(&mut self, field: u32, value: u64) {
        if value == 0 {
            return;
        }
        match field {
            number::FIELD_PRESENCE => {
                self.presence = Some(match value {
                    number::IMPLICIT => Presence::Implicit,
                    number::LEGACY_REQUIRED => Presence::Required,
                    _ => Presence::Explicit,
                });
            }
            number::ENUM_TYPE => self.closed = Some(value == number::CLOSED),
            number::REPEATED_ENCODING => self.packed = Some(value == number::PACKED),
            number::UTF8_VALIDATION => self.utf8 = Some(value == number::VERIFY),
            number::MESSAGE_ENCODING => self.delimited = Some(value == number::DELIMITED),
            _ => {}
        }
    }
}

/// Features that hold at one place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Features {
    pub presence: Presence,
    pub closed: bool,
    pub packed: bool,
    pub utf8: bool,
    pub delimited: bool,
}

impl Features {
    /// What holds below a place that inherits `self` and states `own`.
    #[must_use]
    pub(crate) fn with(self, own: &FeatureSet) -> Features {
        Features {
            presence: own.presence.unwrap_or(self.presence),
            closed: own.closed.unwrap_or(self.closed),
            packed: own.packed.unwrap_or(self.packed),
            utf8: own.utf8.unwrap_or(self.utf8),
            delimited: own.delimited.unwrap_or(self.delimited),
        }
    }

    /// The features of a file: its edition's defaults, and what the file states.
    pub(crate) fn of_file(file: &File) -> Result<Features, SchemaError> {
        let edition = match (file.syntax.as_str(), file.edition) {
            ("" | "proto2", 0) => number::EDITION_PROTO2,
            ("proto3", 0) => number::EDITION_PROTO3,
            (_, edition) => edition,
        };
        let (presence, closed, packed, utf8) = match edition {
            number::EDITION_PROTO2 => (Presence::Explicit, true, false, false),
            number::EDITION_PROTO3 => (Presence::Implicit, false, true, true),
            number::EDITION_2023 | number::EDITION_2024 => (Presence::Explicit, false, true, true),
            _ => {
                let found = if file.edition == 0 {
                    format!("syntax \"{}\"", file.syntax)
                } else {
                    format!("edition number {edition}")
                };
                return Err(SchemaError::Edition { file: file.name.clone(), found });
            }
        };
        Ok(Features { presence, closed, packed, utf8, delimited: false }.with(&file.features))
    }
}
