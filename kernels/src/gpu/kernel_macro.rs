//! The `kernel!` macro.

/// Declares a kernel: a function that the host launches on a grid of threads.
///
/// ```ignore
/// kernel! {
///     /// What it computes.
///     ///
///     /// # Safety
///     ///
///     /// - What the launch must promise.
///     pub unsafe fn name(a: Global<f32>, c: GlobalMut<f32>, n: u32)
///     launch_bounds(256)              // most threads a block may have
///     shared { tile: [f32; 16 * 16] } // arrays that a block's threads share
///     {
///         // `tile` is a `Shared<f32, 256>` here.
///     }
/// }
/// ```
///
/// `launch_bounds(threads, blocks)` adds the least number of blocks that shall
/// fit on one multiprocessor. `shared` may be left out.
///
/// Every compiler builds a kernel, unless `backends(Nvptx)` between the launch
/// bounds and `shared` names those that can; see
/// [`Backend`](crate::launch::Backend).
///
/// On the GPU this becomes an entry of the PTX with the kernel's own name. On
/// the host it becomes a module of that name beside the function, with
///
/// - `ENTRY`, the [`Entry`](crate::launch::Entry) that describes it, and
/// - `launch(grid, block, …)`, which makes a
///   [`Launch`](crate::launch::Launch) and takes the kernel's own parameters: a
///   [`Buffer`](crate::launch::Buffer) for each pointer. A wrong number or type
///   of arguments does not compile.
#[macro_export]
macro_rules! kernel {
    (
        $(#[$meta:meta])*
        pub unsafe fn $name:ident($($parameter:ident: $ty:ty),* $(,)?)
        launch_bounds($threads:expr $(, $blocks:expr)?)
        $(backends($($backend:ident),+ $(,)?))?
        $(shared { $($array:ident: [$element:ty; $len:expr]),* $(,)? })?
        $body:block
    ) => {
        $(#[$meta])*
        #[cfg(all(target_arch = "nvptx64", not(feature = "rust-cuda")))]
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name($($parameter: $ty),*) {
            $($(let $array = $crate::gpu::declare_shared!($name, $array, $element, $len);)*)?
            $body
        }

        $(#[$meta])*
        #[cfg(feature = "rust-cuda")]
        #[cuda_std::kernel]
        pub unsafe fn $name($($parameter: $ty),*) {
            $($(let $array = $crate::gpu::declare_shared!($name, $array, $element, $len);)*)?
            $body
        }

        $(#[$meta])*
        #[cfg(not(any(target_arch = "nvptx64", feature = "rust-cuda")))]
        pub unsafe fn $name($($parameter: $ty),*) {
            $($(let $array = $crate::gpu::declare_shared!($name, $array, $element, $len);)*)?
            $body
        }

        #[doc = concat!("What the host knows of the kernel [`", stringify!($name), "`](fn@", stringify!($name), ").")]
        #[cfg(not(target_arch = "nvptx64"))]
        pub mod $name {
            #[allow(unused_imports, reason = "for the parameters' types and the expressions")]
            use super::*;
            use $crate::launch::{Argument, Dim3, Entry, Launch, LaunchBounds, Parameter, ParameterInfo};

            /// The kernel as the host sees it.
            pub static ENTRY: Entry = Entry {
                name: stringify!($name),
                parameters: &[$(ParameterInfo {
                    name: stringify!($parameter),
                    kind: <$ty as Parameter>::KIND,
                }),*],
                launch_bounds: LaunchBounds::new($threads)$(.min_blocks($blocks))?,
                backends: $crate::backends!($($($backend),+)?),
                static_shared_bytes: 0 $($(+ ($len * size_of::<$element>()) as u32)*)?,
                run,
            };

            /// A launch of the kernel.
            #[allow(clippy::too_many_arguments, reason = "a kernel takes what it takes")]
            pub fn launch(
                grid: Dim3,
                block: Dim3,
                $($parameter: <$ty as Parameter>::Argument),*
            ) -> Launch {
                Launch::new(&ENTRY, grid, block, std::vec![
                    $(<$ty as Parameter>::argument($parameter)),*
                ])
            }

            unsafe fn run(arguments: &[Argument], address: &dyn Fn($crate::launch::Buffer) -> u64) {
                let mut arguments = arguments.iter();
                $(let $parameter = <$ty as Parameter>::from_argument(arguments.next(), address);)*
                // SAFETY: the caller promises what the kernel asks for.
                unsafe { super::$name($($parameter),*) }
            }
        }
    };
}

/// The backends of a kernel: all, or those that it names.
#[doc(hidden)]
#[macro_export]
macro_rules! backends {
    () => {
        $crate::launch::Backend::ALL
    };
    ($($backend:ident),+) => {
        &[$($crate::launch::Backend::$backend),+]
    };
}
