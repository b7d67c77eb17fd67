//! Tensor maps: what the copy engine knows of a matrix.
//!
//! The driver makes them. Its function for that came with CUDA 12, later than
//! the bindings of `cust`, so it is looked up in the loaded driver.

use crate::device::driver_function;
use crate::error::Error;
use cust::sys::CUresult;
use find_cuda_helper::Code;
use kernels::launch::TensorMapSpec;
use std::ffi::c_void;

/// A tensor map, as a kernel takes it: by value. `CUtensorMap` of the driver's
/// headers.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct TensorMap([u64; 16]);

/// `cuTensorMapEncodeTiled` of the driver's `cuda.h`. The enums are passed as
/// the 32-bit integers that they are.
type EncodeTiled = unsafe extern "C" fn(
    map: *mut TensorMap,
    element_type: i32,
    rank: u32,
    address: *mut c_void,
    sizes: *const u64,
    pitches: *const u64,
    box_sizes: *const u32,
    strides: *const u32,
    interleave: i32,
    swizzle: i32,
    l2_promotion: i32,
    out_of_bounds: i32,
) -> CUresult;

/// `CU_TENSOR_MAP_DATA_TYPE_FLOAT32`.
const FLOAT32: i32 = 7;
/// `CU_TENSOR_MAP_INTERLEAVE_NONE`, `CU_TENSOR_MAP_SWIZZLE_NONE`, and
/// `CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE`: what lies outside is zero.
const NONE: i32 = 0;
/// `CU_TENSOR_MAP_L2_PROMOTION_L2_128B`.
const PROMOTE_128_BYTES: i32 = 2;

impl TensorMap {
    /// The map of a matrix at `address`.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] where the driver is older than CUDA 12 or refuses the
    /// sizes.
    pub(crate) fn encode(spec: &TensorMapSpec, address: u64) -> Result<Self, Error> {
        let failed = |operation: &str, source| Error::Driver {
            operation: format!("{operation} (cuTensorMapEncodeTiled)"),
            source,
        };
        let Some(function) = driver_function("cuTensorMapEncodeTiled")? else {
            return Err(failed(
                "making a tensor map, which needs a driver for CUDA 12",
                Code(CUresult::CUDA_ERROR_NOT_FOUND as i32),
            ));
        };
        // SAFETY: the driver exports the function under this name with the type
        // that its headers give, which is the one above.
        let encode: EncodeTiled = unsafe { std::mem::transmute(function.as_ptr()) };
        let mut map = Self([0; 16]);
        // The innermost dimension comes first, here as in the kernel.
        let sizes = [u64::from(spec.columns), u64::from(spec.rows)];
        let pitches = [u64::from(spec.columns) * size_of::<f32>() as u64];
        // SAFETY: all pointers lead to arrays of the lengths that a rank of two
        // asks for: two sizes, one pitch, two box sizes, two strides. The
        // matrix's address is stored and not read.
        let result = unsafe {
            encode(
                &mut map,
                FLOAT32,
                2,
                address as *mut c_void,
                sizes.as_ptr(),
                pitches.as_ptr(),
                [spec.box_columns, spec.box_rows].as_ptr(),
                [1, 1].as_ptr(),
                NONE,
                NONE,
                PROMOTE_128_BYTES,
                NONE,
            )
        };
        if result == CUresult::CUDA_SUCCESS {
            Ok(map)
        } else {
            Err(failed(
                &format!("making a tensor map of {}×{}", spec.rows, spec.columns),
                Code(result as i32),
            ))
        }
    }
}
