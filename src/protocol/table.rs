//! Tables of commands: an enum and, in the same order, a row for each of its variants.
//!
//! Owns the macro that declares both. Must not know any protocol.

/// Declares an enum, whose first variant has the given number, and a table with a row for each variant. A variant is
/// followed by the arguments of the function that builds its row; the first argument, the variant itself, is omitted.
macro_rules! table {
    (
        $(#[$about:meta])*
        enum $name:ident = $first_number:literal;
        $(#[$about_rows:meta])*
        const $rows:ident: [$row:ty] = $build:ident;
        $first:ident($($first_arguments:tt)*),
        $($variant:ident($($arguments:tt)*),)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(missing_docs)] // the table describes each variant
        pub enum $name {
            $first = $first_number,
            $($variant,)*
        }

        $(#[$about_rows])*
        pub const $rows: [$row; [stringify!($first), $(stringify!($variant)),*].len()] =
            [$build($name::$first, $($first_arguments)*), $($build($name::$variant, $($arguments)*)),*];
    };
}
