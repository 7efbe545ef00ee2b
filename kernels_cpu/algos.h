// The CPU's strategies, one maker per file. Internal: programs call append_cpu_algos.
#pragma once

#include <memory>
#include <string>

#include "conv/algo.h"
#include "conv/registry.h"
#include "recurrent/algo.h"

namespace convlab::cpu {

// The share of the bandwidth at which filters are packed.
inline constexpr double packing_efficiency = 0.35;

std::unique_ptr<ConvAlgo> make_depthwise();
std::unique_ptr<ConvAlgo> make_direct();
std::unique_ptr<ConvAlgo> make_direct_first_layer();
std::unique_ptr<ConvAlgo> make_direct_grouped();
std::unique_ptr<ConvAlgo> make_direct_plain();
std::unique_ptr<ConvAlgo> make_implicit_gemm();
std::unique_ptr<ConvAlgo> make_fft();  // refuses everything when built without FFTW
std::string fftw_version();            // of the library loaded; empty when built without it
std::unique_ptr<ConvAlgo> make_fft_tiled();
std::unique_ptr<ConvAlgo> make_fft_tiled_depthwise();
std::unique_ptr<ConvAlgo> make_im2col();
std::unique_ptr<ConvAlgo> make_im2col_blocked();
std::unique_ptr<ConvAlgo> make_strassen();
std::unique_ptr<ConvAlgo> make_winograd();
std::unique_ptr<ConvAlgo> make_winograd_1d();
std::unique_ptr<ConvAlgo> make_winograd_grouped();

std::unique_ptr<RecurrentAlgo> make_recurrent_stepwise();
std::unique_ptr<RecurrentAlgo> make_recurrent_batched_input();
std::unique_ptr<RecurrentAlgo> make_recurrent_persistent();

// Present when built with oneDNN (CONVLAB_HAVE_ONEDNN): which of its algorithms there are depends
// on its version.
void append_onednn(AlgoRegistry&);
void append_onednn(RecurrentRegistry&);
std::string onednn_version();  // of the library loaded, "2.6.3"

}  // namespace convlab::cpu
