//! Macros that read a type of ours, from its names alone: leaves, structs, parts of structs, and
//! enums whose variants have fields.

/// Reads leaves by their serde form.
#[macro_export]
macro_rules! decode_leaf {
    ($($name:ty),* $(,)?) => {$(
        impl $crate::decode::Decode for $name {
            fn decode(
                value: serde_json::Value,
                decoder: &mut $crate::decode::Decoder,
            ) -> Option<Self> {
                decoder.leaf(value)
            }
        }
    )*};
}

/// Reads fields that several types have in common, by their own names or by others. `= default`
/// replaces an absent field.
#[macro_export]
macro_rules! decode_part {
    ($name:ty { $($field:ident $(as $called:literal)? $(= $default:expr)?),* $(,)? }) => {
        impl $crate::decode::Part for $name {
            const FIELDS: &'static [&'static str] =
                &[$($crate::decode_part!(@called $field $($called)?)),*];

            fn take(
                object: &mut serde_json::Map<String, serde_json::Value>,
                decoder: &mut $crate::decode::Decoder,
            ) -> Option<Self> {
                $(let $field = $crate::decode_struct!(
                    @field decoder, object,
                    $crate::decode_part!(@called $field $($called)?) $(, $default)?
                );)*
                Some(Self { $($field: $field?),* })
            }
        }
    };
    (@called $field:ident) => { stringify!($field) };
    (@called $field:ident $called:literal) => { $called };
}

/// Reads a struct field by field. `= default` replaces an absent field, and the string after `as`
/// is the field's name in messages. Parts that it has in common with others
/// ([`Part`](crate::decode::Part)) stand behind a `+`.
#[macro_export]
macro_rules! decode_struct {
    ($name:ty {}) => {
        impl $crate::decode::Decode for $name {
            fn decode(
                value: serde_json::Value,
                decoder: &mut $crate::decode::Decoder,
            ) -> Option<Self> {
                let object = decoder.object(value)?;
                decoder.finish(&object, &[]);
                Some(Self {})
            }
        }
    };
    ($name:ty { $($field:ident $(as $called:literal)? $(= $default:expr)?),* $(,)? }) => {
        impl $crate::decode::Decode for $name {
            fn decode(
                value: serde_json::Value,
                decoder: &mut $crate::decode::Decoder,
            ) -> Option<Self> {
                let mut object = decoder.object(value)?;
                $(let $field = $crate::decode_struct!(
                    @field decoder, &mut object,
                    $crate::decode_part!(@called $field $($called)?) $(, $default)?
                );)*
                decoder.finish(
                    &object,
                    &[$($crate::decode_part!(@called $field $($called)?)),*],
                );
                Some(Self { $($field: $field?),* })
            }
        }
    };
    (
        $name:ty { $($field:ident $(as $called:literal)? $(= $default:expr)?),* $(,)? }
            + $($part:ident),+
    ) => {
        impl $crate::decode::Decode for $name {
            fn decode(
                value: serde_json::Value,
                decoder: &mut $crate::decode::Decoder,
            ) -> Option<Self> {
                let mut object = decoder.object(value)?;
                let mut known = vec![$($crate::decode_part!(@called $field $($called)?)),*];
                $(let $field = $crate::decode_struct!(
                    @field decoder, &mut object,
                    $crate::decode_part!(@called $field $($called)?) $(, $default)?
                );)*
                $(let $part = decoder.part(&mut object, &mut known);)+
                decoder.finish(&object, &known);
                Some(Self { $($field: $field?,)* $($part: $part?),+ })
            }
        }
    };
    (@field $decoder:ident, $object:expr, $called:expr) => {
        $decoder.field($object, $called)
    };
    (@field $decoder:ident, $object:expr, $called:expr, $default:expr) => {
        match $decoder.field::<Option<_>>($object, $called) {
            Some(None) => Some($default),
            Some(some) => some,
            None => None,
        }
    };
}

/// Reads an enum in serde's own form: a variant without fields is a text, any other one is the only
/// field of an object.
#[macro_export]
macro_rules! decode_variants {
    ($name:ident { $(
        $called:literal => $variant:ident $(($inner:ty))? $({
            $($field:ident $(= $default:expr)?),* $(,)?
        })?
    ),* $(,)? }) => {
        impl $crate::decode::Decode for $name {
            fn decode(
                value: serde_json::Value,
                decoder: &mut $crate::decode::Decoder,
            ) -> Option<Self> {
                let (called, value) = decoder.variant(value, &[$($called),*])?;
                let read = |decoder: &mut $crate::decode::Decoder| match called {
                    $($called => $crate::decode_variants!(
                        @read decoder, value, $name, $variant $(($inner))?
                        $({ $($field $(= $default)?),* })?
                    ),)*
                    // The decoder returns one of the names above.
                    _ => None,
                };
                decoder.read_at(format!(".{called}"), read)
            }
        }
    };
    (@read $decoder:ident, $value:ident, $name:ident, $variant:ident) => {
        Some($name::$variant)
    };
    (@read $decoder:ident, $value:ident, $name:ident, $variant:ident ($inner:ty)) => {
        <$inner as $crate::decode::Decode>::decode($value, $decoder).map($name::$variant)
    };
    (@read $decoder:ident, $value:ident, $name:ident, $variant:ident {
        $($field:ident $(= $default:expr)?),*
    }) => {{
        let mut object = $decoder.object($value)?;
        $(let $field = $crate::decode_struct!(
            @field $decoder, &mut object, stringify!($field) $(, $default)?
        );)*
        $decoder.finish(&object, &[$(stringify!($field)),*]);
        Some($name::$variant { $($field: $field?),* })
    }};
}
