//! A macro for command tables.

/// Declares an enum, and a table in which `$build` creates the row of each variant from the variant and its arguments.
macro_rules! table {
    (
        $(#[$about:meta])*
        enum $name:ident = $first_number:literal;
        $(#[$about_rows:meta])*
        static $rows:ident: [$row:ty] = $build:ident;
        $first:ident($($first_arguments:tt)*),
        $($variant:ident($($arguments:tt)*),)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name {
            $first = $first_number,
            $($variant,)*
        }

        $(#[$about_rows])*
        pub static $rows: [$row; [stringify!($first), $(stringify!($variant)),*].len()] =
            [$build($name::$first, $($first_arguments)*), $($build($name::$variant, $($arguments)*)),*];
    };
}
