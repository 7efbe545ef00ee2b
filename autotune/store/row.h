// A row of the tuning store as text and numbers, as SQLite and JSON hold it. The worker's lines
// carry the same. Internal to autotune.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "autotune/store/store.h"

namespace convlab {

// Its fields are named once, in the visitors below: the schema, every statement and the JSON form
// follow from them.

struct RawRow {
  std::string problem, pass, dtype, epilogue;
  std::int64_t threads = 0;
  std::string cache, fingerprint, algo;
  std::int64_t version = 0;
  std::string config, x_layout, y_layout;

  std::string status, reason;
  std::int64_t deterministic = 0, predicted = 0;
  double ms = 0, mad_ms = 0, pack_ms = 0, convert_ms = 0, eff_gflops = 0, exec_gflops = 0;
  double rel_error = 0;
  std::int64_t sampled_error = 0, workspace_bytes = 0, packed_filter_bytes = 0;
  std::vector<double> samples_ms, process_ms, process_pack_ms;
  std::int64_t protocol = 0;
  std::string commit, date;
};

// The key. The fields given to a lookup come first, so that the key's index serves it.
inline constexpr int lookup_fields = 8;
template <class Row, class Visit>
void visit_key(Row& r, Visit&& visit) {
  visit("problem", r.problem);
  visit("pass", r.pass);
  visit("dtype", r.dtype);
  visit("epilogue", r.epilogue);
  visit("threads", r.threads);
  visit("cache", r.cache);
  visit("fingerprint", r.fingerprint);
  visit("algo", r.algo);
  visit("version", r.version);
  visit("config", r.config);
  visit("x_layout", r.x_layout);
  visit("y_layout", r.y_layout);
}

template <class Row, class Visit>
void visit_all(Row& r, Visit&& visit) {
  visit_key(r, visit);
  visit("status", r.status);
  visit("reason", r.reason);
  visit("deterministic", r.deterministic);
  visit("predicted", r.predicted);
  visit("ms", r.ms);
  visit("mad_ms", r.mad_ms);
  visit("pack_ms", r.pack_ms);
  visit("convert_ms", r.convert_ms);
  visit("eff_gflops", r.eff_gflops);
  visit("exec_gflops", r.exec_gflops);
  visit("rel_error", r.rel_error);
  visit("sampled_error", r.sampled_error);
  visit("workspace_bytes", r.workspace_bytes);
  visit("packed_filter_bytes", r.packed_filter_bytes);
  visit("samples_ms", r.samples_ms);
  visit("process_ms", r.process_ms);
  visit("process_pack_ms", r.process_pack_ms);
  visit("protocol", r.protocol);
  visit("commit", r.commit);
  visit("date", r.date);
}

RawRow to_raw(const StoreRow&);
StoreRow from_raw(const RawRow&);  // throws InputError for an impossible value
void require_date(
    const StoreRow&);  // throws InputError for an incomplete date: dates compare as text

nlohmann::json to_json(const StoreRow&);
StoreRow row_from_json(const nlohmann::json&);  // throws InputError that says which field is wrong

}  // namespace convlab
