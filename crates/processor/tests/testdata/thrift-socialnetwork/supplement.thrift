// A struct with every type of Thrift's, for what the social network does not use.

enum Color {
  BLUE = -5,
  RED = 0,
  GREEN = 2,
}

struct Empty {
}

struct Inner {
  1: i32 i,
  2: string s,
  3: bool b,
}

struct AllTypes {
  1: bool f_bool_true,
  2: bool f_bool_false,
  3: i8 f_byte,
  4: i16 f_i16,
  5: i32 f_i32,
  6: i64 f_i64,
  7: double f_double,
  8: string f_string,
  9: binary f_binary,
  10: list<bool> f_list_bool,
  11: list<i16> f_list_i16,
  12: list<double> f_list_double,
  13: list<Inner> f_list_struct,
  14: set<i32> f_set_i32,
  15: set<string> f_set_string,
  16: map<i32, string> f_map_i32_string,
  17: map<string, Inner> f_map_string_struct,
  18: list<list<i64>> f_list_list_i64,
  19: map<string, list<string>> f_map_string_list,
  20: Color f_enum,
  21: binary f_uuid_like,
  22: Empty f_empty_struct,
  23: list<i8> f_list_byte,
  24: map<bool, bool> f_map_bool,
  300: i32 far_field,
}

service Supplement {
  AllTypes Echo(1: AllTypes v),
  oneway void Ping(1: i32 n),
}
