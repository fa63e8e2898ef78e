//! Defaults: constants as IDL spells them.

use super::link::{IdlLinker, Place, Shape};
use crate::SchemaError;
use pilota_thrift_parser::ConstValue;
use tollfree_layout::table::Kind;

/// Constants that name constants: beyond it they go round in a circle.
const LONGEST_CHAIN: usize = 64;

impl IdlLinker<'_> {
    /// The stored form of a default (see [`crate::Field::default`]); none for an empty container, which is what
    /// an absent one reads as.
    pub(super) fn default(
        &self,
        place: Place<'_>,
        value: &ConstValue,
        shape: &Shape,
    ) -> Result<Option<Vec<u8>>, SchemaError> {
        let (file_idx, value) = self.follow(place, value)?;
        let wrong = |what: &str| self.error(place, format!("the default is not {what}"));
        let bits = |number: i64| Some(number.to_le_bytes().to_vec());
        match (shape, value) {
            (Shape::List { .. }, ConstValue::List(items)) if items.is_empty() => Ok(None),
            (Shape::Map { .. }, ConstValue::Map(items)) if items.is_empty() => Ok(None),
            // Both kinds of empty brackets are in use for sets.
            (Shape::List { .. }, ConstValue::Map(items)) if items.is_empty() => Ok(None),
            (Shape::List { .. } | Shape::Map { .. } | Shape::Struct(_), _) => {
                Err(self
                    .error(place, "defaults of structs, and of containers with elements, are not supported"))
            }
            (Shape::Enum(enum_idx), ConstValue::Path(path)) => {
                let number = self.enum_value(file_idx, *enum_idx, path);
                Ok(bits(i64::from(number.ok_or_else(|| wrong("a value of its enum"))?)))
            }
            (Shape::Enum(_) | Shape::Scalar(Kind::Int32), ConstValue::Int(number)) => {
                Ok(bits(i64::from(i32::try_from(number.0).map_err(|_| wrong("a number of 32 bits"))?)))
            }
            (Shape::Scalar(Kind::Int64), ConstValue::Int(number)) => Ok(bits(number.0)),
            (Shape::Scalar(Kind::I16), ConstValue::Int(number)) => {
                Ok(bits(i64::from(i16::try_from(number.0).map_err(|_| wrong("a number of 16 bits"))?)))
            }
            (Shape::Scalar(Kind::I8), ConstValue::Int(number)) => {
                Ok(bits(i64::from(i8::try_from(number.0).map_err(|_| wrong("a number of 8 bits"))?)))
            }
            (Shape::Scalar(kind), ConstValue::Path(path)) if *kind != Kind::Bool => {
                // An enum's value in an integer field.
                let number = self.any_enum_value(file_idx, path);
                match (kind, number) {
                    (Kind::Int32 | Kind::Int64, Some(number)) => Ok(bits(i64::from(number))),
                    _ => Err(wrong("a constant that fits the field")),
                }
            }
            (Shape::Scalar(Kind::Bool), ConstValue::Bool(value)) => Ok(bits(i64::from(*value))),
            (Shape::Scalar(Kind::Bool), ConstValue::Int(number)) if matches!(number.0, 0 | 1) => {
                Ok(bits(number.0))
            }
            (Shape::Scalar(Kind::Double), ConstValue::Int(number)) => {
                Ok(Some((number.0 as f64).to_le_bytes().to_vec()))
            }
            (Shape::Scalar(Kind::Double), ConstValue::Double(text)) => {
                let value: f64 = text.0.parse().map_err(|_| wrong("a number"))?;
                Ok(Some(value.to_le_bytes().to_vec()))
            }
            (Shape::Scalar(Kind::String | Kind::Bytes), ConstValue::String(text)) => {
                Ok(Some(text.0.clone().into_bytes()))
            }
            _ => Err(wrong("of the field's type")),
        }
    }

    /// The value behind names of constants, and the file in which it stands.
    fn follow<'v>(
        &'v self,
        place: Place<'_>,
        mut value: &'v ConstValue,
    ) -> Result<(usize, &'v ConstValue), SchemaError> {
        let mut file_idx = place.file_idx;
        for _ in 0..LONGEST_CHAIN {
            let ConstValue::Path(path) = value else { return Ok((file_idx, value)) };
            let found = self.split(file_idx, &path.segments);
            let Some((found, constant)) = found.and_then(|found| self.consts.get_key_value(&found)) else {
                return Ok((file_idx, value));
            };
            (file_idx, value) = (found.0, &constant.value);
        }
        Err(self.error(place, "the default's constant leads back to itself"))
    }

    /// `VALUE`, `Enum.VALUE` or `file.Enum.VALUE`, for a field of this enum.
    fn enum_value(&self, file_idx: usize, enum_idx: usize, path: &pilota_thrift_parser::Path) -> Option<i32> {
        let (name, enum_path) = path.segments.split_last()?;
        if !enum_path.is_empty() {
            let found = self.split(file_idx, enum_path)?;
            if *self.enums.get(&found)? != enum_idx {
                return None;
            }
        }
        let values = &self.schema.enums[enum_idx].values;
        values.iter().find(|value| value.name == name.as_str()).map(|value| value.number)
    }

    fn any_enum_value(&self, file_idx: usize, path: &pilota_thrift_parser::Path) -> Option<i32> {
        let (_, enum_path) = path.segments.split_last()?;
        let found = self.split(file_idx, enum_path)?;
        self.enum_value(file_idx, *self.enums.get(&found)?, path)
    }
}
