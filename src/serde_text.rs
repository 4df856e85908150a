//! Wait plans and bands in serde formats: a string, in every format, that is their text.
//!
//! A plan that no text spells (see [`WaitPlan::label`]) is written all the same, and refused when it
//! is read.

use crate::core::plan::{WaitBands, WaitPlan};
use core::{fmt, marker::PhantomData, str::FromStr};
use serde_core::de::{self, Deserialize, Deserializer, Visitor};
use serde_core::ser::{Serialize, Serializer};

impl Serialize for WaitPlan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WaitPlan {
    /// Fails with the message of [`WaitPlan::parse`].
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text("the text of a wait plan", PhantomData))
    }
}

impl Serialize for WaitBands {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WaitBands {
    /// Fails with the message of [`WaitBands::parse`].
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text("the text of wait plans in bands", PhantomData))
    }
}

/// Reads a `T` from its text. The words are what is said to have been expected of another type.
struct Text<T>(&'static str, PhantomData<T>);

impl<T: FromStr<Err = crate::Error>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_plan_is_its_text() {
        let plan = WaitPlan::parse("flag:park_us=100,backstop_us=50000").unwrap();
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(json, r#""flag:park_us=100,backstop_us=50000""#);
        assert_eq!(serde_json::from_str::<WaitPlan>(&json).unwrap(), plan);
        let owned = serde_json::Value::String(plan.label());
        assert_eq!(serde_json::from_value::<WaitPlan>(owned).unwrap(), plan);
    }

    #[test]
    fn bands_are_their_text() {
        let bands = WaitBands::parse("poll;rows>=8:block").unwrap();
        let json = serde_json::to_string(&bands).unwrap();
        assert_eq!(json, r#""poll;rows>=8:block""#);
        assert_eq!(serde_json::from_str::<WaitBands>(&json).unwrap(), bands);
    }

    #[test]
    fn a_malformed_text_fails_with_the_fault_of_the_parser() {
        let fault = WaitPlan::parse("spin:backstop_us=0").unwrap_err().to_string();
        let error = serde_json::from_str::<WaitPlan>(r#""spin:backstop_us=0""#).unwrap_err();
        assert!(error.to_string().starts_with(&fault), "{error}");
        let error = serde_json::from_str::<WaitBands>("7").unwrap_err();
        assert!(error.to_string().contains("the text of wait plans in bands"), "{error}");
    }
}
