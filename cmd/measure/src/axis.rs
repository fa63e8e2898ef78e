//! Axes of a measurement: what a user chooses by name, and what a row says by the same name.

/// Declares an axis: an enum whose values have one spelling, on the command line, in JSON and in tables.
#[macro_export]
macro_rules! axis {
    ($(#[$doc:meta])* $name:ident, $what:literal, { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ::serde::Serialize, ::serde::Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant,)+
        }

        impl $name {
            /// All values, in the order in which they are measured and shown.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The one spelling of this value.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::ALL.iter().copied().find(|value| value.name() == text).ok_or_else(|| {
                    let known: Vec<_> = Self::ALL.iter().map(|value| value.name()).collect();
                    format!(concat!("no such ", $what, "; there are {}"), known.join(", "))
                })
            }
        }
    };
}

axis! {
    /// Where the two processes run.
    Placement, "placement", {
        /// Each on a core of its own.
        Split = "split",
        /// Both on one core.
        SameCore = "same-core",
        /// Wherever the kernel puts them.
        Unpinned = "unpinned",
    }
}

pub use axis;
