%% The Erlang peer: it measures gen_batch_server as the line protocol of bench/peers/README.md asks.
-module(gbs_peer).

-export([main/0]).
-export([init/1, handle_batch/2]).

-define(SYSTEM, "gen_batch_server").
%% The cost of a batch in the measurements of gen_batch_server's PR 29: 3 ms, and 3 ms for each MiB of the batch.
-define(BATCH_NS, 3000000).
-define(MIB_NS, 3000000).
-define(MIB, 1048576).
-define(LIMITS, [{min_batch_size, 32}, {max_batch_size, 8192}]).

main() ->
    ok = application:load(gen_batch_server),
    serve(),
    erlang:halt(0).

serve() ->
    case io:get_line("") of
        Line when is_list(Line) ->
            case string:lexemes(Line, " \t\r\n") of
                [] -> ok;
                [Verb | Fields] -> io:put_chars([answer(Verb, Fields), $\n])
            end,
            serve();
        _EofOrError ->
            ok
    end.

answer(Verb, Fields) ->
    try
        request(Verb, maps:from_list([field(Field) || Field <- Fields]))
    catch
        throw:Reason -> object([{"error", Reason}]);
        Class:Reason -> object([{"error", lists:flatten(io_lib:format("~0p:~0p", [Class, Reason]))}])
    end.

field(Field) ->
    case string:split(Field, "=") of
        [Key, Value] -> {Key, Value};
        _ -> throw("not key=value: " ++ Field)
    end.

request("hello", _) ->
    object([{"systems", {raw, ["[", object([{"system", ?SYSTEM}, {"version", version()}]), "]"]}}]);
request("mailbox", Fields) ->
    case text("system", Fields) of
        ?SYSTEM -> mailbox(text("case", Fields), Fields);
        System -> throw("unknown system: " ++ System)
    end;
request(Verb, _) ->
    throw("unknown request: " ++ Verb).

mailbox("noop", Fields) ->
    noop(whole("producers", 1, 1024, Fields), whole("items", 1, 100000000, Fields));
mailbox("pr29", Fields) ->
    Items = whole("items", 1, 10000000, Fields),
    Payload = whole("payload", 0, 64 * ?MIB, Fields),
    case text("growth", Fields) of
        "exponential" -> pr29(Items, Payload, queue_data(Fields));
        %% Older versions ignore an unknown option, so the peer would silently measure the exponential rule again.
        "aimd:" ++ _ -> throw("not supported by version " ++ version());
        Growth -> throw("unknown growth: " ++ Growth)
    end;
mailbox(Case, _) ->
    throw("unknown case: " ++ Case).

%% Returns whether the messages that wait for the server count as a part of its heap; the default of Erlang is on_heap.
queue_data(#{"queue_data" := "off_heap"}) -> off_heap;
queue_data(#{"queue_data" := "on_heap"}) -> on_heap;
queue_data(#{"queue_data" := Other}) -> throw("unknown queue_data: " ++ Other);
queue_data(_) -> on_heap.

%% --- noop: several processes cast messages of 5 bytes; the time ends when the handler has counted all of them ---

noop(Producers, Items) ->
    Driver = self(),
    {ok, Server} = gen_batch_server:start_link(undefined, ?MODULE, {noop, Driver, Items}, ?LIMITS),
    Shares = [Items * (I + 1) div Producers - Items * I div Producers || I <- lists:seq(0, Producers - 1)],
    Workers = [spawn_link(fun() -> receive go -> cast_all(Server, <<"hello">>, Share) end end) || Share <- Shares],
    {_, Batches, ElapsedS, CpuS} = timed(fun() ->
        [Worker ! go || Worker <- Workers],
        receive {handled, Server, Seen, Count} -> {Seen, Count} end
    end),
    ok = gen_batch_server:stop(Server),
    object(named(lists:concat(["mailbox noop p", Producers])) ++ figures(Items, ElapsedS, CpuS) ++
           [{"batches", Batches}, {"batch_mean", Items / Batches}]).

%% --- pr29: one process casts messages; the time ends when the server answers a call after the last of them ---

pr29(Items, PayloadBytes, QueueData) ->
    %% A new process casts the messages, so that they do not enlarge the driver's own heap.
    Driver = self(),
    Ref = make_ref(),
    spawn_link(fun() ->
        Payload = binary:copy(<<0>>, PayloadBytes),
        {ok, Server} = gen_batch_server:start_link(undefined, ?MODULE, {pr29, QueueData}, ?LIMITS),
        {Seen, ok, ElapsedS, CpuS} = timed(fun() ->
            cast_all(Server, Payload, Items),
            {gen_batch_server:call(Server, barrier, infinity), ok}
        end),
        ok = gen_batch_server:stop(Server),
        Driver ! {Ref, Seen, ElapsedS, CpuS}
    end),
    {AnySizes, AnyHeaps, ElapsedS, CpuS} = receive {Ref, {S, H}, E, C} -> {S, H, E, C} end,
    Sizes = lists:sort(AnySizes),
    Young = lists:sort([Words || {Words, _} <- AnyHeaps]),
    Total = lists:max([Words || {_, Words} <- AnyHeaps]),
    object(named("mailbox pr29 exponential") ++ figures(Items, ElapsedS, CpuS) ++
           [{"payload", PayloadBytes},
            {"batches", length(Sizes)},
            {"batch_mean", mean(Sizes)}, {"batch_p50", quantile(0.5, Sizes)},
            {"batch_p95", quantile(0.95, Sizes)}, {"batch_max", lists:last(Sizes)},
            {"heap_words_mean", mean(Young)}, {"heap_words_p50", quantile(0.5, Young)},
            {"heap_words_max", lists:last(Young)}, {"heap_peak_kb", kib(lists:last(Young))},
            {"total_heap_peak_kb", kib(Total)},
            {"items_ok", lists:sum(Sizes) =:= Items}]).

%% --- the handlers of batches ---

init({noop, Driver, Items}) -> {ok, {noop, Driver, Items, 0, 0}};
init({pr29, QueueData}) ->
    process_flag(message_queue_data, QueueData),
    {ok, {pr29, [], []}}.

handle_batch(Batch, {noop, Driver, Items, Seen, Batches}) ->
    Now = Seen + length(Batch),
    Now =:= Items andalso (Driver ! {handled, self(), Now, Batches + 1}),
    {ok, {noop, Driver, Items, Now, Batches + 1}};
handle_batch(Batch, {pr29, Sizes, Heaps}) ->
    Start = erlang:monotonic_time(nanosecond),
    {Casts, Bytes, Callers} = weigh(Batch, 0, 0, []),
    spin_until(Start + ?BATCH_NS + Bytes * ?MIB_NS div ?MIB),
    %% PR 29 published only sizes of the young generation, so the handler records these and the total.
    [{heap_size, Young}, {total_heap_size, Total}] = erlang:process_info(self(), [heap_size, total_heap_size]),
    {NewSizes, NewHeaps} =
        case Casts of
            0 -> {Sizes, Heaps};
            _ -> {[Casts | Sizes], [{Young, Total} | Heaps]}
        end,
    {ok, [{reply, From, {NewSizes, NewHeaps}} || From <- Callers], {pr29, NewSizes, NewHeaps}}.

weigh([{cast, Payload} | Rest], Casts, Bytes, Callers) -> weigh(Rest, Casts + 1, Bytes + byte_size(Payload), Callers);
weigh([{call, From, barrier} | Rest], Casts, Bytes, Callers) -> weigh(Rest, Casts, Bytes, [From | Callers]);
weigh([], Casts, Bytes, Callers) -> {Casts, Bytes, Callers}.

spin_until(End) ->
    case erlang:monotonic_time(nanosecond) < End of
        true -> spin_until(End);
        false -> ok
    end.

%% --- helpers of both cases ---

cast_all(_Server, _Item, 0) -> ok;
cast_all(Server, Item, Left) ->
    ok = gen_batch_server:cast(Server, Item),
    cast_all(Server, Item, Left - 1).

%% Runs Fun, which returns a pair. Returns the pair, and the seconds and CPU seconds that Fun took.
timed(Fun) ->
    %% Collects the garbage of earlier requests, so that their collection does not fall into this measurement.
    erlang:garbage_collect(),
    {Cpu, _} = statistics(runtime),
    Start = erlang:monotonic_time(nanosecond),
    {A, B} = Fun(),
    End = erlang:monotonic_time(nanosecond),
    {CpuEnd, _} = statistics(runtime),
    {A, B, (End - Start) / 1.0e9, (CpuEnd - Cpu) / 1.0e3}.

figures(Items, ElapsedS, CpuS) ->
    [{"ops_per_s", Items / ElapsedS}, {"elapsed_s", ElapsedS}, {"cpu_s", CpuS}, {"items", Items}].

named(Case) ->
    [{"system", ?SYSTEM}, {"version", version()}, {"otp", erlang:system_info(otp_release)}, {"case", Case}].

version() ->
    {ok, Version} = application:get_key(gen_batch_server, vsn),
    Version.

kib(Words) -> Words * erlang:system_info(wordsize) / 1024.

mean(List) -> lists:sum(List) / length(List).

quantile(Q, Sorted) -> lists:nth(max(1, ceil(length(Sorted) * Q)), Sorted).

text(Key, Fields) ->
    case Fields of
        #{Key := Value} -> Value;
        _ -> throw("the request needs " ++ Key ++ "=")
    end.

whole(Key, Min, Max, Fields) ->
    Text = text(Key, Fields),
    case string:to_integer(Text) of
        {Value, ""} when Value >= Min, Value =< Max -> Value;
        _ -> throw(Key ++ "=" ++ Text ++ " is not a whole number in range")
    end.

object(Fields) ->
    ["{", lists:join(",", [[json(Key), ":", json(Value)] || {Key, Value} <- Fields]), "}"].

json({raw, Text}) -> Text;
json(true) -> "true";
json(false) -> "false";
json(Value) when is_integer(Value) -> integer_to_list(Value);
json(Value) when is_float(Value) -> float_to_list(Value, [{decimals, 6}]);
json(Value) -> [$", [escape(Char) || Char <- Value], $"].

escape($") -> "\\\"";
escape($\\) -> "\\\\";
escape(Char) when Char < 32 -> io_lib:format("\\u~4.16.0b", [Char]);
escape(Char) -> Char.
