//! What `tollfree-build` generates as views and builders, unmodified, beside prost's types of the same messages.
#![forbid(unsafe_code)]

/// Everyday messages.
pub mod everyday {
    include!(concat!(env!("OUT_DIR"), "/shop/views.rs"));

    /// prost's types of the same.
    #[allow(missing_docs)]
    pub mod prost {
        /// Package `shop`.
        pub mod shop {
            include!(concat!(env!("OUT_DIR"), "/shop/shop.rs"));
        }
    }
}

/// Messages with all kinds of fields: proto3's (`t3`), and proto2's with defaults, groups and closed enums (`t2`).
pub mod kinds {
    include!(concat!(env!("OUT_DIR"), "/kinds/views.rs"));

    /// prost's types of the same.
    #[allow(missing_docs)]
    pub mod prost {
        /// proto3.
        pub mod t3 {
            include!(concat!(env!("OUT_DIR"), "/kinds/t3.rs"));
        }

        /// proto2.
        pub mod t2 {
            include!(concat!(env!("OUT_DIR"), "/kinds/t2.rs"));
        }
    }
}

/// Unusual names, and a message of another package.
pub mod names {
    include!(concat!(env!("OUT_DIR"), "/names/views.rs"));

    /// prost's types of the same.
    #[allow(missing_docs)]
    pub mod prost {
        /// Package `stubs`.
        pub mod stubs {
            /// Package `stubs.names`.
            pub mod names {
                /// Package `stubs.names.v1`.
                pub mod v1 {
                    include!(concat!(env!("OUT_DIR"), "/names/stubs.names.v1.rs"));
                }
            }
        }
    }
}

/// Files with options of their own, and messages whose names views would have.
pub mod options {
    include!(concat!(env!("OUT_DIR"), "/options/views.rs"));

    /// prost's types of the same.
    #[allow(missing_docs)]
    pub mod prost {
        /// Package `stubs`.
        pub mod stubs {
            /// Package `stubs.options`.
            pub mod options {
                include!(concat!(env!("OUT_DIR"), "/options/stubs.options.rs"));
            }
        }
    }
}

/// A message with the forms that JSON has for well-known types.
pub mod special {
    include!(concat!(env!("OUT_DIR"), "/json/views.rs"));

    /// prost's types of the same.
    #[allow(missing_docs)]
    pub mod prost {
        /// Package `json`.
        pub mod json {
            include!(concat!(env!("OUT_DIR"), "/json/json.rs"));
        }
    }
}
