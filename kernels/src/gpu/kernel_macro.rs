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
///     needs("sm_90")                  // target whose features it uses
///     tensor_maps(b)                  // matrices for the copy engine
///     launch_bounds(256)              // most threads a block may have
///     clusters(8)                     // most blocks of a cluster
///     start(early)                    // may be launched before the one before it ends
///     shared { tile: [f32; 16 * 16] } // arrays that a block's threads share
///     dynamic_shared { stages: [f32; 40_000], full: [Barrier; 4] }
///     {
///         // `tile` is a `Shared<f32, 256>` here, `b` a `TensorMap`.
///     }
/// }
/// ```
///
/// - `needs` may be left out: the kernel is then in the code for every target.
///   Where the target lacks the features, the kernel does not exist.
/// - `tensor_maps` may be left out. The kernel takes them before its other
///   parameters.
/// - `launch_bounds(threads, blocks)` adds the least number of blocks that
///   shall fit on one multiprocessor.
/// - `clusters` may be left out. A launch may then not put blocks into
///   [clusters](crate::gpu::cluster). Devices have clusters of 8 blocks at most.
/// - `start(early)` may be left out. With it, the kernel begins by waiting for
///   the launch before it and all that it wrote, on targets that can (`sm_90` or
///   later); the host launches it while that one still runs, which hides the time
///   that a launch takes. CUDA calls this programmatic dependent launch. A kernel
///   with `start(itself)` calls
///   [`wait_for_launch_before`](crate::gpu::wait_for_launch_before) by itself,
///   after what it can do before.
/// - `shared` may be left out. A block has at most 48 KiB of it.
/// - `dynamic_shared` may be left out. Its arrays lie in the memory that a
///   launch gives a block, which may be much more; every launch of the kernel
///   gives what they take. Each starts at a multiple of 128 bytes.
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
///   [`Buffer`](crate::launch::Buffer) for each pointer, a
///   [`TensorMapSpec`](crate::launch::TensorMapSpec) for each tensor map. A
///   wrong number or type of arguments does not compile.
#[macro_export]
macro_rules! kernel {
    (
        $(#[$meta:meta])*
        pub unsafe fn $name:ident($($parameter:ident: $ty:ty),* $(,)?)
        $(needs($needs:literal))?
        $(tensor_maps($($map:ident),* $(,)?))?
        launch_bounds($threads:expr $(, $blocks:expr)?)
        $(clusters($cluster:expr))?
        $(start($early:ident))?
        $(backends($($backend:ident),+ $(,)?))?
        $(shared { $($array:ident: [$element:ty; $len:expr]),* $(,)? })?
        $(dynamic_shared { $($dynamic:ident: [$dynamic_element:ty; $dynamic_len:expr]),* $(,)? })?
        $body:block
    ) => {
        $(#[$meta])*
        #[cfg(all(
            target_arch = "nvptx64",
            not(feature = "rust-cuda")
            $(, target_feature = $needs)?
        ))]
        #[allow(clippy::too_many_arguments, reason = "a kernel takes what it takes")]
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name(
            $($(
                #[allow(unused_variables, reason = "named below, by its place")]
                $map: $crate::gpu::TensorMapParameter,
            )*)?
            $($parameter: $ty),*
        ) {
            $(
                #[repr(usize)]
                #[allow(non_camel_case_types, reason = "numbers the maps as the kernel takes them")]
                enum Maps { $($map),* }
                $(let $map = $crate::gpu::tensor_map_parameter!($name, $map, Maps::$map as usize);)*
            )?
            $crate::kernel!(@arrays $name
                $(shared { $($array: [$element; $len]),* })?
                $(dynamic_shared { $($dynamic: [$dynamic_element; $dynamic_len]),* })?
            );
            $($crate::gpu::start::$early();)?
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
        #[allow(clippy::too_many_arguments, reason = "a kernel takes what it takes")]
        pub unsafe fn $name($($($map: $crate::gpu::TensorMap,)*)? $($parameter: $ty),*) {
            $crate::kernel!(@arrays $name
                $(shared { $($array: [$element; $len]),* })?
                $(dynamic_shared { $($dynamic: [$dynamic_element; $dynamic_len]),* })?
            );
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
                parameters: &[
                    $($(ParameterInfo {
                        name: stringify!($map),
                        kind: <$crate::gpu::host::TensorMap as Parameter>::KIND,
                    },)*)?
                    $(ParameterInfo {
                        name: stringify!($parameter),
                        kind: <$ty as Parameter>::KIND,
                    }),*
                ],
                launch_bounds: LaunchBounds::new($threads)$(.min_blocks($blocks))?,
                backends: $crate::backends!($($($backend),+)?),
                static_shared_bytes: 0 $($(+ ($len * size_of::<$element>()) as u32)*)?,
                dynamic_shared_bytes: 0 $(+ {
                    $crate::kernel!(@layout { $($dynamic: [$dynamic_element; $dynamic_len]),* });
                    size_of::<Layout>() as u32
                })?,
                needs: {
                    #[allow(unused_mut, unused_assignments, reason = "for kernels that name a target")]
                    let mut needs = $crate::launch::Target::BASELINE;
                    $(needs = $crate::launch::Target::parse($needs);)?
                    needs
                },
                max_cluster: {
                    #[allow(unused_mut, unused_assignments, reason = "for kernels that know clusters")]
                    let mut max_cluster = 1;
                    $(max_cluster = $cluster;)?
                    max_cluster
                },
                starts_early: false $(|| $crate::launch::start::$early())?,
                run,
            };

            /// A launch of the kernel.
            #[allow(clippy::too_many_arguments, reason = "a kernel takes what it takes")]
            pub fn launch(
                grid: Dim3,
                block: Dim3,
                $($($map: <$crate::gpu::host::TensorMap as Parameter>::Argument,)*)?
                $($parameter: <$ty as Parameter>::Argument),*
            ) -> Launch {
                Launch::new(&ENTRY, grid, block, std::vec![
                    $($(<$crate::gpu::host::TensorMap as Parameter>::argument($map),)*)?
                    $(<$ty as Parameter>::argument($parameter)),*
                ])
            }

            unsafe fn run(arguments: &[Argument], address: &dyn Fn($crate::launch::Buffer) -> u64) {
                let mut arguments = arguments.iter();
                $($(let $map = <$crate::gpu::host::TensorMap as Parameter>::from_argument(arguments.next(), address);)*)?
                $(let $parameter = <$ty as Parameter>::from_argument(arguments.next(), address);)*
                // SAFETY: the caller promises what the kernel asks for.
                unsafe { super::$name($($($map,)*)? $($parameter),*) }
            }
        }
    };

    // Binds each shared array's name in the kernel that expands it.
    (@arrays $name:ident
        $(shared { $($array:ident: [$element:ty; $len:expr]),* })?
        $(dynamic_shared { $($dynamic:ident: [$dynamic_element:ty; $dynamic_len:expr]),* })?
    ) => {
        $($(let $array = $crate::gpu::declare_shared!($name, $array, $element, $len);)*)?
        $(
            $crate::kernel!(@layout { $($dynamic: [$dynamic_element; $dynamic_len]),* });
            $(let $dynamic = $crate::gpu::declare_dynamic_shared!(
                $dynamic, $dynamic_element, $dynamic_len, core::mem::offset_of!(Layout, $dynamic)
            );)*
        )?
    };

    // Where each array of the dynamic shared memory lies.
    (@layout { $($dynamic:ident: [$element:ty; $len:expr]),* }) => {
        #[repr(C)]
        #[allow(dead_code, reason = "a layout, never a value")]
        struct Layout { $($dynamic: $crate::gpu::Aligned<[$element; $len]>),* }
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
