//! Tables of a description whose keys all have defaults.

/// Defines a table: documentation, and `KEY: TYPE = DEFAULT`.
macro_rules! settings {
    (
        $(#[$doc:meta])*
        $name:ident { $($(#[$about:meta])* $key:ident: $type:ty = $default:expr,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name { $($(#[$about])* pub $key: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }
    };
}
