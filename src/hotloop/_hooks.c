/* What the wrappers of probe/observers do around each call, part of _fast.c: clock, call site, row, counts.

   Hook(what, kind, rows, sites, failed, switch, count, given, original=None) does what `what` names; `given` are the
   Python functions and tables it asks. The Python of each stands in its observer, and decides what is right. An
   Exception inside goes to failed(switch, error). A hook is either called by a wrapper in Python, whose caller's
   frame is the site; called by it without arguments it says when it begins. Or it is attached to that wrapper, and
   answers whoever calls it from C. Or it has an `original`: then it is the wrapper itself, and what it needs lies
   together, as in a step of milliseconds nothing of it is in a cache.
*/

#ifdef __linux__ /* where perf_counter_ns reads this clock */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#define HAVE_HOOKS

static uint64_t now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

/* ---- numbers that Python and hooks share: attributes of the class derived from each -------------------------- */

typedef struct { /* probe/counting.py, StepCount */
    PyObject_HEAD
    long long backwards, batches, rounds, fed_at, fetched, updates, callbacks, next_tick, opened, opened_at, opened_site, skip;
} Counts;

typedef struct { /* probe/observers/modules.py, Entry */
    PyObject_HEAD
    long long id, flags, noted;
} Entry;

typedef struct { /* probe/observers/loaders.py, Iterator */
    PyObject_HEAD
    long long id, flags, full, num_batches, before, yielded;
} Feed;

typedef struct { /* probe/sampler.py, Sampler */
    PyObject_HEAD
    long long paused, _worker;
} Ticks;

#define NUMBER(type, name) {#name, Py_T_LONGLONG, offsetof(type, name), 0, NULL}

static PyMemberDef counts_members[] = {
    NUMBER(Counts, backwards), NUMBER(Counts, batches), NUMBER(Counts, rounds), NUMBER(Counts, fed_at),
    NUMBER(Counts, fetched), NUMBER(Counts, updates), NUMBER(Counts, callbacks), NUMBER(Counts, next_tick),
    NUMBER(Counts, opened), NUMBER(Counts, opened_at), NUMBER(Counts, opened_site), NUMBER(Counts, skip), {NULL, 0, 0, 0, NULL},
};
static PyMemberDef entry_members[] = {
    NUMBER(Entry, id), NUMBER(Entry, flags), NUMBER(Entry, noted), {NULL, 0, 0, 0, NULL},
};
static PyMemberDef feed_members[] = {
    NUMBER(Feed, id), NUMBER(Feed, flags), NUMBER(Feed, full), NUMBER(Feed, num_batches), NUMBER(Feed, before),
    NUMBER(Feed, yielded), {NULL, 0, 0, 0, NULL},
};
static PyMemberDef ticks_members[] = {
    NUMBER(Ticks, paused), NUMBER(Ticks, _worker), {NULL, 0, 0, 0, NULL},
};

#define NUMBERS(Name, prefix)                                                                                         \
    static PyType_Slot prefix##_slots[] = {                                                                           \
        {Py_tp_doc, "Numbers, 0 at first."}, {Py_tp_members, prefix##_members}, {0, NULL},                            \
    };                                                                                                                \
    static PyType_Spec prefix##_spec = {                                                                              \
        .name = "hotloop._fast." #Name,                                                                               \
        .basicsize = sizeof(Name),                                                                                    \
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,                                                            \
        .slots = prefix##_slots,                                                                                      \
    };                                                                                                                \
    static PyTypeObject *prefix##_type;

NUMBERS(Counts, counts)
NUMBERS(Entry, entry)
NUMBERS(Feed, feed)
NUMBERS(Ticks, ticks)

/* ---- hooks --------------------------------------------------------------------------------------------------- */

#define NUM_GIVEN 8
#define BY_HAND 100 /* backwards without an update, as in probe/observers/autograd.py */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *original; /* what a whole wrapper calls, else NULL */
    PyObject *owner;    /* of the switch: a list of one, the thread that is recorded */
    PyObject **owner_at; /* its element: a list keeps its place that keeps its length */
    PyObject *ident_of; /* what lay there when `ident` was read of it */
    uint64_t ident;
    Rows *rows;
    Sites *sites;
    Counts *count;
    uint64_t since;
    uint8_t kind;
    PyObject *given[NUM_GIVEN];
    PyObject *training, *compiled, *failed, *observer, *names, *weak;
} Hook;

/* ---- wrappers in Python that are called by C ----------------------------------------------------------------------

   A type's __call__ is called through a pointer in the function. attach() lets it lead to a hook: who looks at the
   wrapper (dynamo, inspect) sees a function, who steps into its frames runs it, and an ordinary call is the hook's. */

#define NUM_ATTACHED 4

/* One cache line each. Nothing in it is kept alive: a hook that goes takes itself out. */
static struct {
    PyObject *function, *original;
    Hook *hook;
    PyObject **within; /* its first element is one of these where a call is none of the hook's; NULL: all are */
    PyObject *forward, *backward;
    void *unused[2];
} attached[NUM_ATTACHED] __attribute__((aligned(64)));
static size_t num_attached;
static vectorcallfunc python_call;

static PyObject *in_python(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *names)
{
    return PyFunction_Check(function) && python_call != NULL ? python_call(function, args, nargsf, names)
        : PyObject_Vectorcall(function, args, nargsf, names);
}

static PyObject *attached_call(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *names)
{
    size_t at = 0;
    while (at < NUM_ATTACHED && attached[at].function != function)
        at++;
    /* A profiler knows modules by the wrapper's code: torch's does. */
    PyThreadState *state = PyThreadState_Get();
    if (at == NUM_ATTACHED || state->c_profilefunc != NULL
        || _PyInterpreterState_GetEvalFrameFunc(state->interp) != _PyEval_EvalFrameDefault)
        return python_call(function, args, nargsf, names);
    if (attached[at].within != NULL) {
        PyObject *within = attached[at].within[0];
        if (within == attached[at].forward || within == attached[at].backward) {
            PyObject *original = Py_NewRef(attached[at].original);
            PyObject *result = PyObject_Vectorcall(original, args, nargsf, names);
            Py_DECREF(original);
            return result;
        }
    }
    Hook *hook = (Hook *)Py_NewRef(attached[at].hook);
    PyObject *result = hook->call((PyObject *)hook, args, nargsf, names);
    Py_DECREF(hook);
    return result;
}

static void detach(const Hook *hook)
{
    for (size_t at = 0; at < NUM_ATTACHED; at++)
        if (attached[at].hook == hook)
            attached[at].function = NULL, attached[at].hook = NULL;
}

/* Ask for what an end reads, all of it at once: one after the other each would be waited for. What is used in every
   step comes first in `given`. */
static void prefetch(const Hook *self)
{
    __builtin_prefetch(self->rows);
    __builtin_prefetch((const char *)self->rows + 64);
    __builtin_prefetch(self->sites);
    __builtin_prefetch(self->count);
    __builtin_prefetch((const char *)self->count + 64);
    __builtin_prefetch(&self->given[4]);
    __builtin_prefetch(&self->failed);
    __builtin_prefetch(self->given[0]);
    __builtin_prefetch(self->given[1]);
    __builtin_prefetch(self->given[2]);
}

/* Whether an error was the observer's own failure, and is told; if not, it belongs to the script. */
static int excused(Hook *self)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return 0;
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL)
        PyException_SetTraceback(error, trace);
    PyObject *done = PyObject_CallFunctionObjArgs(self->failed, self->observer, error, NULL);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    Py_XDECREF(done);
    return done != NULL;
}

/* What a hook returns. */
static PyObject *over(Hook *self, int good)
{
    return good || excused(self) ? Py_NewRef(Py_None) : NULL;
}

/* Call and let go of what it returns. Takes over nothing. */
static int ask(PyObject *function, PyObject *one, PyObject *two)
{
    PyObject *done = PyObject_CallFunctionObjArgs(function, one, two, NULL);
    Py_XDECREF(done);
    return done != NULL;
}

/* Whether a function says yes of something, or without arguments; -1: it failed. */
static int says_of(PyObject *function, PyObject *one)
{
    PyObject *found = one == NULL ? PyObject_CallNoArgs(function) : PyObject_CallOneArg(function, one);
    int yes = found == NULL ? -1 : PyObject_IsTrue(found);
    Py_XDECREF(found);
    return yes;
}

static int says(PyObject *function)
{
    return says_of(function, NULL);
}

/* Negative numbers are 0, as in a row: a queue may count fewer batches than were asked for. 0 with an error. */
static int unsigned_of(PyObject *number, uint64_t *value)
{
    int beyond;
    long long found = PyLong_AsLongLongAndOverflow(number, &beyond);
    *value = beyond > 0 ? PyLong_AsUnsignedLongLong(number) : (uint64_t)(found < 0 ? 0 : found);
    return !PyErr_Occurred();
}

/* The frame that made the call: the current one, or that of the caller of the wrapper which called us. */
static PyObject *caller(int wrapped)
{
    PyFrameObject *frame = (PyFrameObject *)Py_XNewRef(PyEval_GetFrame());
    if (frame != NULL && wrapped) {
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    return frame == NULL ? Py_NewRef(Py_None) : (PyObject *)frame; /* None: called by no Python */
}

/* The site that `caller` stands at, -1 with an error. */
static long site_of_caller(Hook *self, int wrapped)
{
#ifdef HAVE_FRAMES
    long latest = sites_latest(self->sites, wrapped);
    if (latest >= 0)
        return latest;
#endif
    PyObject *frame = caller(wrapped);
    long site = sites_find(self->sites, frame);
    Py_DECREF(frame);
    return site;
}

static int site_here(Hook *self, long *site)
{
    *site = site_of_caller(self, self->original == NULL);
    return *site >= 0;
}

/* Look which thread is recorded; 0 with an error. */
static int look_at_owner(Hook *self)
{
    PyObject *found = *self->owner_at;
    if (found != self->ident_of) {
        uint64_t ident;
        if (!unsigned_of(found, &ident))
            return 0;
        self->ident = ident;
        Py_XSETREF(self->ident_of, Py_NewRef(found));
    }
    return 1;
}

/* Whether the calling thread is the one that is recorded; -1 with an error. */
static int recorded(Hook *self)
{
    return look_at_owner(self) ? self->ident == PyThread_get_thread_ident() : -1;
}

/* A hook called without arguments: the time, 0 in a thread that is not recorded. */
static PyObject *begin(Hook *self)
{
    int ours = recorded(self);
    return ours < 0 ? NULL : PyLong_FromUnsignedLongLong(ours ? now_ns() : 0);
}

static int takes(PyObject *const *args, size_t nargsf, PyObject *names, Py_ssize_t num)
{
    if (PyVectorcall_NARGS(nargsf) == num && (names == NULL || PyTuple_GET_SIZE(names) == 0))
        return 1;
    PyErr_SetString(PyExc_TypeError, "a hook got other arguments than it takes");
    return 0;
}

/* cleared(), cleared(start) */
static PyObject *hook_cleared(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Hook *self = (Hook *)object;
    if (PyVectorcall_NARGS(nargsf) == 0)
        return begin(self);
    prefetch(self);
    uint64_t stop = now_ns(), start;
    long site;
    return over(self, takes(args, nargsf, names, 1) && unsigned_of(args[0], &start) && site_here(self, &site) &&
        rows_put(self->rows, self->kind, start, stop - start, 0, site, 0, 0, 0));
}

/* What a module that keeps its attributes as torch's do has under a name, else what it says. */
static PyObject *attribute(PyObject *module, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(module, name); /* no __getattr__ to look for first */
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        found = PyObject_GetAttr(module, name);
    }
    return found;
}

/* The entry of a module, NULL where it has none or with an error. */
static Entry *entry_of(Hook *self, PyObject *module)
{
    PyObject *key = PyLong_FromVoidPtr(module);
    PyObject *entry = key == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(self->given[0], key));
    Py_XDECREF(key);
    if (entry != NULL && !PyObject_TypeCheck(entry, entry_type)) {
        PyErr_SetString(PyExc_TypeError, "not an entry");
        Py_CLEAR(entry);
    }
    return (Entry *)entry;
}

/* The flags of a call. 0 with an error. */
static int flags_of(Hook *self, PyObject *module, const Entry *entry, uint64_t *flags)
{
    PyObject *compiled = NULL, *training = NULL, *seen = NULL;
    int good = 0, grad, trains, autocast;
    *flags = (uint64_t)entry->flags;
    if ((grad = says(self->given[1])) < 0 || (training = attribute(module, self->training)) == NULL ||
        (trains = PyObject_IsTrue(training)) < 0)
        goto end;
    *flags |= (grad ? 0x01 : 0) | (trains ? 0x02 : 0); /* FORWARD_GRAD, FORWARD_TRAINING */
    if ((autocast = says(self->given[2])) < 0)
        goto end;
    if (autocast && ((seen = PyObject_CallFunction(self->given[5], "K", (unsigned long long)*flags)) == NULL || !unsigned_of(seen, flags)))
        goto end;
    if ((compiled = attribute(module, self->compiled)) == NULL)
        goto end;
    *flags |= compiled != Py_None ? 0x10 : 0; /* FORWARD_COMPILED */
    good = 1;
end:
    Py_XDECREF(compiled);
    Py_XDECREF(training);
    Py_XDECREF(seen);
    return good;
}

/* The end of a call of a module that may be new. */
static int called(Hook *self, PyObject *module, uint64_t start, uint64_t stop)
{
    uint64_t flags;
    long site;
    Entry *entry = entry_of(self, module);
    if (entry == NULL && !PyErr_Occurred()) {
        entry = (Entry *)PyObject_CallOneArg(self->given[3], module);
        if (entry != NULL && !PyObject_TypeCheck((PyObject *)entry, entry_type)) {
            PyErr_SetString(PyExc_TypeError, "not an entry");
            Py_CLEAR(entry);
        }
    }
    if (entry == NULL)
        return 0;
    int good = flags_of(self, module, entry, &flags) && (entry->noted || ask(self->given[4], module, (PyObject *)entry)) &&
        site_here(self, &site) &&
        rows_put(self->rows, self->kind, start, stop - start, 0, site, (uint64_t)entry->id, 0, flags);
    Py_DECREF(entry);
    return good;
}

/* called(), called(module, start). given: known, grad_enabled, autocast, new_entry, note, autocasted */
static PyObject *hook_called(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    if (PyVectorcall_NARGS(nargsf) == 0)
        return begin((Hook *)object);
    prefetch((Hook *)object);
    uint64_t stop = now_ns(), start;
    return over((Hook *)object, takes(args, nargsf, names, 2) && unsigned_of(args[1], &start) &&
        called((Hook *)object, args[0], start, stop));
}

static int tick(Hook *self, PyObject *function, uint64_t stop)
{
    PyObject *at = PyLong_FromUnsignedLongLong(stop);
    int good = at != NULL && ask(function, at, NULL);
    Py_XDECREF(at);
    return good;
}

/* A call of a whole wrapper's original: when, what it returned, or NULL and what it raised. */
typedef struct {
    uint64_t start, stop;
    PyObject *result, *type, *error, *trace;
} Call;

static Call timed(Hook *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Call call = {.start = now_ns()};
    call.result = PyObject_Vectorcall(self->original, args, nargsf, names);
    prefetch(self);
    call.stop = now_ns();
    if (call.result == NULL)
        PyErr_Fetch(&call.type, &call.error, &call.trace);
    return call;
}

/* What the wrapper gives to its caller; its end went well or not. */
static PyObject *finished(Hook *self, int good, Call *call)
{
    if (good || excused(self)) {
        if (call->result == NULL)
            PyErr_Restore(call->type, call->error, call->trace);
        return call->result;
    }
    Py_XDECREF(call->result);
    Py_XDECREF(call->type);
    Py_XDECREF(call->error);
    Py_XDECREF(call->trace);
    return NULL;
}

/* Attached to __call__(module, ...). given: as called's, inside, the wrapper in Python. What can be told of a known
   module is told before the call, while its caller is in the caches. */
static PyObject *hook_forward(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Hook *self = (Hook *)object;
    PyObject *inside = self->given[6], *within = PyList_GetItem(inside, 0);
    long where = within == NULL ? -1 : PyLong_AsLong(within);
    PyObject *window = where == 0 ? PyList_GetItem(inside, 1) : NULL;
    if (window != Py_None || PyVectorcall_NARGS(nargsf) < 1) {
        PyErr_Clear();
        return in_python(self->given[7], args, nargsf, names);
    }
    prefetch(self);
    PyObject *module = args[0];
    uint64_t flags;
    long site;
    Entry *entry = NULL;
    int ours = recorded(self), known = 0;
    if (ours > 0) {
        entry = entry_of(self, module);
        known = entry != NULL && entry->noted;
        if (PyErr_Occurred() || (known && !(flags_of(self, module, entry, &flags) && site_here(self, &site))) ||
            PyList_SetItem(inside, 0, PyLong_FromLong(1)) < 0)
            ours = -1;
    }
    if (ours <= 0) {
        Py_XDECREF(entry);
        if (ours < 0 && !excused(self))
            return NULL;
        return PyObject_Vectorcall(self->original, args, nargsf, names);
    }
    Call call = timed(self, args, nargsf, names);
    int good = PyList_SetItem(inside, 0, PyLong_FromLong(0)) == 0 &&
        (known ? rows_put(self->rows, self->kind, call.start, call.stop - call.start, 0, site, (uint64_t)entry->id, 0, flags)
               : called(self, module, call.start, call.stop));
    Py_XDECREF(entry);
    return finished(self, good, &call);
}

/* The end of a backward that began with a loss, NULL none. */
static int went_backward(Hook *self, PyObject *loss, uint64_t start, uint64_t stop)
{
    Counts *count = self->count;
    uint64_t every, stride;
    long site;
    if (!unsigned_of(self->given[0], &every) || !unsigned_of(self->given[1], &stride) || !site_here(self, &site) ||
        !rows_put(self->rows, self->kind, start, stop - start, 0, site, 0, 0, 0))
        return 0;
    uint64_t number = (uint64_t)++count->backwards;
    if (count->fetched) {
        count->fetched = 0;
        count->batches++;
        count->fed_at = count->rounds;
    }
    if (!count->rounds && (long long)stop >= count->next_tick && !tick(self, self->given[4], stop))
        return 0;
    /* maybe a training that updates by hand */
    if (!count->rounds && count->callbacks && number > BY_HAND && !ask(self->given[6], NULL, NULL))
        return 0;
    if (number > every && number % stride)
        return 1;
    PyObject *done = PyObject_CallFunction(self->given[3], "OKl", loss == NULL ? Py_None : loss, (unsigned long long)stop, site);
    Py_XDECREF(done);
    return done != NULL;
}

static PyObject *loss_in(PyObject *const *args, Py_ssize_t num, PyObject *names)
{
    if (num > 0)
        return args[0];
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), "tensors") == 0)
            return args[i];
    return NULL;
}

/* Whole: backward(...). given: every_loss, loss_stride, inside, read_loss, tick, claim */
static PyObject *hook_backward(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Hook *self = (Hook *)object;
    PyObject *inside = self->given[2], *within = PyList_GetItem(inside, 0), *off;
    long before = within == NULL ? -1 : PyLong_AsLong(within);
    int ours = before == 2 ? 0 : before < 0 ? -1 : recorded(self);
    if (ours == 0 && before != 2) { /* a thread that goes backward is recorded, if the recorded one never did */
        off = PyObject_GetAttrString(self->observer, "off");
        ours = off == NULL ? -1 : PyObject_IsTrue(off) ? 0 : says(self->given[5]);
        Py_XDECREF(off);
    }
    if (ours > 0 && PyList_SetItem(inside, 0, PyLong_FromLong(2)) < 0)
        ours = -1;
    if (ours <= 0) {
        if (ours < 0 && !excused(self))
            return NULL;
        return PyObject_Vectorcall(self->original, args, nargsf, names);
    }
    Call call = timed(self, args, nargsf, names);
    int good = PyList_SetItem(inside, 0, PyLong_FromLong(before)) == 0 &&
        went_backward(self, loss_in(args, PyVectorcall_NARGS(nargsf), names), call.start, call.stop);
    return finished(self, good, &call);
}

/* began(optimizer), or attached: (optimizer, args, kwargs). given: nested */
static int began(Hook *self, PyObject *optimizer, int wrapped)
{
    Counts *count = self->count;
    int ours = recorded(self);
    if (ours <= 0)
        return ours == 0;
    if (count->opened) {
        PyObject *frame = caller(wrapped);
        int inside = says_of(self->given[0], frame);
        Py_DECREF(frame);
        if (inside != 0)
            return inside == 1;
    }
    long site = site_of_caller(self, wrapped);
    if (site < 0)
        return 0;
    count->opened = (long long)(uintptr_t)optimizer;
    count->opened_site = site;
    count->opened_at = (long long)now_ns();
    return 1;
}

static PyObject *hook_began(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    prefetch((Hook *)object);
    int wrapped = PyVectorcall_NARGS(nargsf) != 3;
    return over((Hook *)object, takes(args, nargsf, names, wrapped ? 1 : 3) && began((Hook *)object, args[0], wrapped));
}

/* stepped(optimizer), or attached: (optimizer, args, kwargs). given: known, rounds, new, updated, tick */
static int stepped(Hook *self, PyObject *optimizer, uint64_t stop)
{
    Counts *count = self->count;
    PyObject *round = self->given[1], *number = NULL;
    int ours = recorded(self);
    if (ours <= 0 || count->opened != (long long)(uintptr_t)optimizer)
        return ours >= 0;
    count->opened = 0;
    PyObject *key = PyLong_FromVoidPtr(optimizer);
    int good = 0, again;
    uint64_t id;
    if (key == NULL)
        return 0;
    number = Py_XNewRef(PyDict_GetItemWithError(self->given[0], key));
    if (number == NULL && !PyErr_Occurred())
        number = PyObject_CallFunction(self->given[2], "OL", optimizer, count->opened_site);
    if (number == NULL || !unsigned_of(number, &id) ||
        !rows_put(self->rows, self->kind, (uint64_t)count->opened_at, stop - (uint64_t)count->opened_at, 0,
                  (uint64_t)count->opened_site, id, 0, 0) ||
        (again = PySet_Contains(round, number)) < 0)
        goto end;
    count->updates++;
    if (again || PySet_GET_SIZE(round) == 0)
        count->rounds++;
    if (again && PySet_GET_SIZE(round) > 1 && PySet_Clear(round) < 0)
        goto end;
    good = PySet_Add(round, number) == 0 && (!count->callbacks || ask(self->given[3], NULL, NULL)) &&
        ((long long)stop < count->next_tick || tick(self, self->given[4], stop));
end:
    Py_XDECREF(number);
    Py_DECREF(key);
    return good;
}

static PyObject *hook_stepped(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    prefetch((Hook *)object);
    uint64_t stop = now_ns();
    int good = takes(args, nargsf, names, PyVectorcall_NARGS(nargsf) == 3 ? 3 : 1) && stepped((Hook *)object, args[0], stop);
    return over((Hook *)object, good);
}

/* The end of a next(). */
static int fetched(Hook *self, Feed *feed, uint64_t waiting, const Call *call)
{
    uint64_t samples, every;
    long site;
    PyObject *state = (PyObject *)feed, *batch = call->result;
    if (!site_here(self, &site))
        return 0;
    if (batch == NULL) {
        int ended = PyErr_GivenExceptionMatches(call->type, PyExc_StopIteration);
        PyObject *done = PyObject_CallFunction(self->given[2], "OKlKKO", state, (unsigned long long)waiting, site,
                                               (unsigned long long)call->start, (unsigned long long)call->stop, ended ? Py_True : Py_False);
        Py_XDECREF(done);
        return done != NULL;
    }
    feed->yielded++;
    samples = (uint64_t)feed->full;
    if (!samples || feed->yielded == feed->num_batches) {
        PyObject *found = PyObject_CallFunctionObjArgs(self->given[3], state, batch, NULL);
        int good = found != NULL && unsigned_of(found, &samples);
        Py_XDECREF(found);
        if (!good)
            return 0;
    }
    if (!rows_put(self->rows, self->kind, call->start, call->stop - call->start, samples, site, (uint64_t)feed->id, waiting,
                  (uint64_t)feed->flags))
        return 0;
    self->count->fetched = 1;
    uint64_t number = (uint64_t)(feed->before + feed->yielded);
    if (!unsigned_of(self->given[5], &every))
        return 0;
    return number % every != 1 || (number >= 10 * every && number % (10 * every) != 1) || ask(self->given[4], state, batch);
}

/* What is known of an iterator where the calling thread is recorded, else NULL; 0 with an error. */
static int iterator_here(Hook *self, PyObject *iterator, Feed **feed)
{
    int ours = recorded(self);
    PyObject *key = ours > 0 ? PyLong_FromVoidPtr(iterator) : NULL;
    *feed = key == NULL ? NULL : (Feed *)Py_XNewRef(PyDict_GetItemWithError(self->given[0], key));
    Py_XDECREF(key);
    if (*feed != NULL && !PyObject_TypeCheck((PyObject *)*feed, feed_type)) {
        PyErr_SetString(PyExc_TypeError, "not an iterator's numbers");
        Py_CLEAR(*feed);
    }
    return !PyErr_Occurred();
}

/* Whole: __next__(iterator). given: entries, ready, ended, samples_in, note_batch, note_every, loaders, stop_if_done */
static PyObject *hook_next(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Hook *self = (Hook *)object;
    Feed *feed = NULL;
    uint64_t waiting = UINT16_MAX;
    if (PyVectorcall_NARGS(nargsf) == 1 && names == NULL) {
        int ours = self->given[7] == Py_None ? 0 : recorded(self);
        if (ours > 0 && !ask(self->given[7], NULL, NULL)) /* the run ends here when its steps are done (--steps) */
            return NULL;
        int good = ours >= 0 && iterator_here(self, args[0], &feed);
        if (good && feed != NULL && feed->flags) {
            PyObject *found = PyObject_CallOneArg(self->given[1], args[0]);
            good = found != NULL && unsigned_of(found, &waiting);
            Py_XDECREF(found);
        }
        if (!good && !excused(self)) {
            Py_XDECREF(feed);
            return NULL;
        }
    }
    if (feed == NULL)
        return PyObject_Vectorcall(self->original, args, nargsf, names);
    Call call = timed(self, args, nargsf, names);
    int good = fetched(self, feed, waiting, &call);
    Py_DECREF(feed);
    PyObject *result = finished(self, good, &call);
    if (result == NULL || !PyDict_CheckExact(result))
        return result;
    PyObject *tracked = PyObject_CallMethod(self->given[6], "track", "OO", args[0], result);
    int taken = tracked == NULL ? -1 : PyObject_IsTrue(tracked);
    if (taken == 0) {
        Py_DECREF(tracked);
        return result;
    }
    Py_DECREF(result);
    if (taken < 0)
        Py_CLEAR(tracked);
    return tracked;
}

/* Whole: fetch(fetcher, index). given: the wrapper in Python, for batches that are observed */
static PyObject *hook_fetch(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Hook *self = (Hook *)object;
    if (self->count->skip <= 0)
        return PyObject_Vectorcall(self->given[0], args, nargsf, names);
    self->count->skip--;
    return PyObject_Vectorcall(self->original, args, nargsf, names);
}

/* making(dataset, indices): the samples, and when the one that took longest began, how long it took and its index
   (None of fewer than two). As _samples of probe/observers/workers.py. */
static PyObject *making(PyObject *module, PyObject *const *args, Py_ssize_t num)
{
    if (num != 2) {
        PyErr_SetString(PyExc_TypeError, "making(dataset, indices): two arguments");
        return NULL;
    }
    PyObject *iterator = PyObject_GetIter(args[1]), *samples = PyList_New(0), *index, *slowest = NULL, *made = NULL;
    uint64_t before = now_ns(), began = 0, longest = 0;
    while (iterator != NULL && samples != NULL && (index = PyIter_Next(iterator)) != NULL) {
        PyObject *sample = PyObject_GetItem(args[0], index);
        int good = sample != NULL && PyList_Append(samples, sample) == 0 && PyErr_CheckSignals() == 0;
        uint64_t after = now_ns();
        Py_XDECREF(sample);
        if (slowest == NULL || after - before > longest) {
            began = before, longest = after - before;
            Py_XSETREF(slowest, Py_NewRef(index));
        }
        Py_DECREF(index);
        before = after;
        if (!good)
            break;
    }
    if (!PyErr_Occurred())
        made = PyList_GET_SIZE(samples) < 2 ? Py_BuildValue("OO", samples, Py_None)
            : Py_BuildValue("O(KKO)", samples, (unsigned long long)began, (unsigned long long)longest, slowest);
    Py_XDECREF(slowest);
    Py_XDECREF(samples);
    Py_XDECREF(iterator);
    return made;
}

/* ---- stack samples -----------------------------------------------------------------------------------------------

   A thread of our own, of which Python knows nothing, keeps time; signals would cut system calls short. At a tick it
   asks the main thread for a call, which is made where a signal's handler would be: at the next jump or call of
   Python, whatever runs. That may be another line: an operator of tensors (x = d @ a) is followed by none. So a main
   thread that is without the lock, and still is half a millisecond later, is in native code for longer: it is looked
   at by the thread itself, which takes no lock that the main thread holds. */

#if PY_VERSION_HEX >= 0x030D0000
#define FINALIZING Py_IsFinalizing()
#else
#define FINALIZING _Py_IsFinalizing()
#endif
enum {
    REST_NS = 200000, /* less time off the CPU is small beside any sample: not asked about */
    NATIVE_NS = 500000, /* without the lock for so long: in native code, or waiting */
    STACK = 1 << 20
};

static struct {
    pthread_mutex_t lock; /* of what stands up to `ends` */
    pthread_cond_t changed;
    long long next, interval, slower_at, slower; /* ns */
    int ends;
    int running, inside, elsewhere; /* elsewhere: another thread than the main one is recorded */
    pthread_t thread;
    pid_t pid, held, again; /* held: by a fork in this process; again: to run once that is through */
    Hook *hook;
    PyThreadState *main;
    clockid_t cpu;
    int schedstat;
    long long asked; /* when the call was asked for that was not made yet, 0 none */
    long long last, last_cpu, last_ready, off_cpu;
} ticker;

/* How long the main thread was on a CPU so far, and ready without a core: the second number the kernel says. */
static long long cpu_time(void)
{
    struct timespec at = {0, 0};
    clock_gettime(ticker.cpu, &at);
    return (long long)at.tv_sec * 1000000000 + at.tv_nsec;
}

static long long ready_time(void)
{
    char text[65], *second;
    ssize_t length = ticker.schedstat < 0 ? 0 : pread(ticker.schedstat, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = 0;
    strtoull(text, &second, 10);
    return *second == ' ' ? (long long)strtoull(second, NULL, 10) : ticker.last_ready;
}

static PyThreadState *state_of(uint64_t ident)
{
    PyThreadState *state = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
    while (state != NULL && state->thread_id != ident)
        state = PyThreadState_Next(state);
    return state;
}

/* Write a sample, with the interpreter's lock: in the main thread, or in ours. 0 with an error. A stack that was seen
   runs no Python: dynamo has nothing to compile, and no handler of the script's can raise through it. */
static int sample(Hook *self, long long asked, int in_main)
{
    Ticks *ticks = (Ticks *)self->given[0];
    if (ticker.inside) /* the other thread is at it */
        return 1;
    if (!look_at_owner(self))
        return 0;
    int of_main = ticks->_worker || self->ident == ticker.main->thread_id; /* in a worker no thread is recorded */
    ticker.elsewhere = !of_main && self->ident != 0;
    if (in_main && ticker.elsewhere)
        return 1;
    PyThreadState *state = of_main ? ticker.main : state_of(self->ident);
    PyObject *frame = state == NULL || ticks->paused ? NULL : (PyObject *)PyThreadState_GetFrame(state);
    long long now = (long long)now_ns(), stack = 0, weight = now - ticker.last, share = UINT16_MAX;
    if (frame != NULL) {
        ticker.inside = 1;
        stack = sites_stack(self->sites, frame);
        if (stack <= 0) {
            PyErr_Clear();
            PyObject *found = PyObject_CallOneArg(self->given[1], frame);
            stack = found == NULL ? -1 : PyLong_AsLong(found);
            Py_XDECREF(found);
        }
        ticker.inside = 0;
        Py_DECREF(frame);
        if (PyErr_Occurred())
            return 0;
    }
    ticker.last = now;
    if (of_main) {
        long long cpu = cpu_time(), busy = cpu - ticker.last_cpu;
        ticker.last_cpu = cpu;
        ticker.off_cpu += weight > busy ? weight - busy : 0;
        if (ticker.off_cpu > REST_NS) { /* ready without a core is no waiting */
            long long ready = ready_time();
            busy += ready - ticker.last_ready;
            ticker.last_ready = ready;
            ticker.off_cpu = 0;
        }
        share = busy >= weight ? 1000 : busy > 0 ? busy * 1000 / weight : 0;
    }
    long long late = now > asked ? (now - asked) / 1000 : 0;
    if (!in_main && !rows_ready(self->rows)) /* the main thread's rows would be dropped while this one maps a piece */
        return 1;
    return frame == NULL || rows_put(self->rows, self->kind, (uint64_t)now, weight > 0 ? (uint64_t)weight : 0, (uint64_t)stack, 0,
                                     (uint64_t)share, (uint64_t)LEAST(late, UINT16_MAX - 1), 0);
}

/* The call that the main thread makes. What a handler of the script's raised goes on to the script. */
static int called_for(void *unused)
{
    long long asked = __atomic_exchange_n(&ticker.asked, 0, __ATOMIC_SEQ_CST);
    Hook *hook = ticker.hook;
    if (asked == 0 || hook == NULL || ticker.pid != getpid())
        return 0;
    Py_INCREF(hook);
    int good = sample(hook, asked, 1) || excused(hook);
    Py_DECREF(hook);
    return good ? 0 : -1;
}

#if PY_VERSION_HEX >= 0x030D0000 || defined(HAVE_FRAMES)
/* Ask, again where it was before: what wakes the main thread may be lost while it answers another. */
static int ask_main(int fresh)
{
#if PY_VERSION_HEX >= 0x030D0000
    return fresh && Py_AddPendingCall(called_for, NULL) < 0;
#else /* these look at their queue when told by the main thread only */
    PyInterpreterState *interp = PyInterpreterState_Main();
#if PY_VERSION_HEX >= 0x030C0000
    int failed = fresh && _PyEval_AddPendingCall(interp, called_for, NULL, 1) < 0;
#else
    int failed = fresh && _PyEval_AddPendingCall(interp, called_for, NULL) < 0;
#endif
    _Py_atomic_store_relaxed(&interp->ceval.eval_breaker, 1);
    return failed;
#endif
}

static int main_has_lock(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return ticker.main->_status.active;
#else
    return _PyThreadState_UncheckedGet() == ticker.main;
#endif
}

static void at_tick(long long now)
{
    Ticks *ticks = (Ticks *)ticker.hook->given[0];
    long long none = 0;
    if (FINALIZING)
        return;
    if (!ticker.elsewhere) {
        struct timespec nap = {0, NATIVE_NS};
        if (main_has_lock() || nanosleep(&nap, NULL) || main_has_lock()) {
            int fresh = __atomic_compare_exchange_n(&ticker.asked, &none, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
            if (ask_main(fresh))
                __atomic_store_n(&ticker.asked, 0, __ATOMIC_SEQ_CST); /* the queue is full of others' calls */
            return;
        }
    }
    if (ticks->paused)
        return;
    PyGILState_STATE before = PyGILState_Ensure();
    int collects = PyGC_Disable(); /* the script's finalizers are not for this thread */
    if (rows_ready(ticker.hook->rows) && !sample(ticker.hook, now, 0) && !excused(ticker.hook))
        PyErr_Clear();
    if (collects)
        PyGC_Enable();
    PyGILState_Release(before);
}

/* The first tick after a time, of those that follow the next one. */
static long long next_tick(long long now)
{
    return now < ticker.next ? ticker.next : ticker.next + ((now - ticker.next) / ticker.interval + 1) * ticker.interval;
}

static void *keep_time(void *unused)
{
    pthread_mutex_lock(&ticker.lock);
    while (!ticker.ends) {
        struct timespec at = {ticker.next / 1000000000, ticker.next % 1000000000};
        if (pthread_cond_timedwait(&ticker.changed, &ticker.lock, &at) != ETIMEDOUT)
            continue;
        long long now = (long long)now_ns();
        if (now >= ticker.slower_at)
            ticker.interval = ticker.slower;
        ticker.next = next_tick(now);
        pthread_mutex_unlock(&ticker.lock);
        at_tick(now);
        pthread_mutex_lock(&ticker.lock);
    }
    pthread_mutex_unlock(&ticker.lock);
    return NULL;
}

/* Start the thread; an error number or 0. */
static int ticker_run(void)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&ticker.changed, &monotonic);
    pthread_mutex_init(&ticker.lock, NULL);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    sigfillset(&all);
    ticker.ends = 0;
    ticker.pid = getpid();
    ticker.next = next_tick((long long)now_ns());
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&ticker.thread, &attributes, keep_time, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    ticker.running = !failed;
    if (!failed)
        pthread_setname_np(ticker.thread, "hotloop");
    return failed;
}
#else
#define ticker_run() ENOTSUP
#endif

/* End the thread; whether there was one. */
static int ticker_end(void)
{
    int ran = ticker.running && ticker.pid == getpid();
    ticker.running = 0;
    if (ran) {
        pthread_mutex_lock(&ticker.lock);
        ticker.ends = 1;
        pthread_cond_signal(&ticker.changed);
        pthread_mutex_unlock(&ticker.lock);
        Py_BEGIN_ALLOW_THREADS
        pthread_join(ticker.thread, NULL);
        Py_END_ALLOW_THREADS
    }
    return ran;
}

/* hold() and go_on(): around a fork, which would copy but the thread that calls it. No Python runs in them. The thread
   comes again once fork() is through: Python 3.13.0 counts threads at its end, and warns of more than one. */
static PyObject *hold(PyObject *module, PyObject *unused)
{
    if (ticker_end() || ticker.again == getpid())
        ticker.held = ticker.pid;
    ticker.again = 0;
    Py_RETURN_NONE;
}

static int run_again(void *unused)
{
    if (ticker.again != 0 && ticker.again == getpid())
        ticker_run();
    ticker.again = 0;
    return 0;
}

static PyObject *go_on(PyObject *module, PyObject *unused)
{
    ticker.again = ticker.held;
    ticker.held = 0;
    /* A main thread that waits for this one runs no pending calls. */
    if (ticker.again != 0 && (PyThreadState_Get() != ticker.main || Py_AddPendingCall(run_again, NULL) != 0))
        run_again(NULL);
    Py_RETURN_NONE;
}

/* sampled(first, interval, slower_at, slower, main, schedstat): sample from now on; sampled(): no more. Times in ns,
   the ident of the main thread, a file or -1. given: the sampler's numbers, stack(frame) for stacks not seen yet. */
static PyObject *hook_sampled(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Hook *self = (Hook *)object;
    long long at[6];
    if (PyVectorcall_NARGS(nargsf) == 0) {
        if (ticker.hook == self) {
            ticker_end();
            ticker.held = ticker.again = 0;
            Py_CLEAR(ticker.hook);
        }
        Py_RETURN_NONE;
    }
    if (!takes(args, nargsf, names, 6))
        return NULL;
    for (int i = 0; i < 6; i++)
        if ((at[i] = PyLong_AsLongLong(args[i])) == -1 && PyErr_Occurred())
            return NULL;
    PyThreadState *main = state_of((uint64_t)at[4]);
    if (!PyObject_TypeCheck(self->given[0], ticks_type) || at[1] <= 0 || at[3] <= 0 || main == NULL) {
        PyErr_SetString(PyExc_ValueError, "no numbers, intervals or thread of a sampler");
        return NULL;
    }
    ticker_end();
    Py_XSETREF(ticker.hook, (Hook *)Py_NewRef(object));
    ticker.next = at[0], ticker.interval = at[1], ticker.slower_at = at[2], ticker.slower = at[3];
    ticker.main = main;
    ticker.schedstat = (int)at[5];
    if (pthread_getcpuclockid((pthread_t)at[4], &ticker.cpu) != 0)
        ticker.cpu = CLOCK_THREAD_CPUTIME_ID;
    ticker.last = (long long)now_ns();
    ticker.last_cpu = cpu_time();
    ticker.last_ready = 0;
    ticker.last_ready = ready_time();
    ticker.asked = ticker.off_cpu = 0;
    ticker.inside = ticker.elsewhere = ticker.held = ticker.again = 0;
    int failed = ticker_run();
    if (failed) {
        errno = failed;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

/* collected(phase, info). given: worth_a_row_ns */
static int collected(Hook *self, PyObject *phase, PyObject *info, uint64_t now)
{
    uint64_t start = self->since, worth, generation;
    self->since = 0;
    if (PyUnicode_Check(phase) && PyUnicode_CompareWithASCIIString(phase, "start") == 0) {
        self->since = now;
        return 1;
    }
    int ours = start ? recorded(self) : 0;
    PyObject *found = ours > 0 ? PyMapping_GetItemString(info, "generation") : NULL;
    int good = found == NULL ? ours == 0 : unsigned_of(found, &generation) && unsigned_of(self->given[0], &worth) &&
        ((generation != 2 && now - start < worth) || rows_put(self->rows, self->kind, start, now - start, generation, 0, 0, 0, 0));
    Py_XDECREF(found);
    return good;
}

static PyObject *hook_collected(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    uint64_t now = now_ns();
    return over((Hook *)object, takes(args, nargsf, names, 2) && collected((Hook *)object, args[0], args[1], now));
}

static PyTypeObject *hook_type;

/* attach(function, hook): calls of a function of Python by C are the hook's from now on. */
static PyObject *attach(PyObject *module, PyObject *const *args, Py_ssize_t num)
{
    if (num != 2 || !PyFunction_Check(args[0]) || !PyObject_TypeCheck(args[1], hook_type) ||
        (((Hook *)args[1])->call == hook_forward && !PyList_Check(((Hook *)args[1])->given[6]))) {
        PyErr_SetString(PyExc_TypeError, "attach(function, hook)");
        return NULL;
    }
    PyFunctionObject *function = (PyFunctionObject *)args[0];
    if (function->vectorcall != attached_call) {
        if (python_call != NULL && function->vectorcall != python_call)
            Py_RETURN_NONE; /* somebody else's */
        python_call = function->vectorcall;
    }
    Hook *hook = (Hook *)args[1];
    size_t place = 0;
    while (place < NUM_ATTACHED && attached[place].function != args[0] && attached[place].function != NULL)
        place++;
    place = place < NUM_ATTACHED ? place : num_attached++ % NUM_ATTACHED;
    attached[place].hook = hook;
    attached[place].original = hook->original;
    attached[place].forward = attached[place].backward = NULL;
    attached[place].within = NULL;
    if (hook->call == hook_forward) { /* of calls within another, or within a backward, nothing is told */
        PyObject *one = PyLong_FromLong(1), *two = PyLong_FromLong(2); /* one object each, for ever */
        attached[place].forward = one, attached[place].backward = two;
        attached[place].within = ((PyListObject *)hook->given[6])->ob_item; /* of a list that keeps its length */
        Py_XDECREF(one);
        Py_XDECREF(two);
    }
    attached[place].function = args[0];
#if PY_VERSION_HEX >= 0x030C0000
    PyFunction_SetVectorcall(function, attached_call);
#else
    function->vectorcall = attached_call;
#endif
    Py_RETURN_NONE;
}

static const struct {
    const char *name;
    vectorcallfunc call;
    int num_given, whole;
} hook_table[] = {
    {"cleared", hook_cleared, 0, 0}, {"called", hook_called, 6, 0}, {"began", hook_began, 1, 0}, {"stepped", hook_stepped, 5, 0},
    {"collected", hook_collected, 1, 0}, {"sampled", hook_sampled, 2, 0}, {"backward", hook_backward, 7, 1},
    {"next", hook_next, 8, 1}, {"fetch", hook_fetch, 1, 1}, {"forward", hook_forward, 8, 1},
};

static PyObject *hook_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    const char *what;
    unsigned char kind;
    PyObject *rows, *sites, *failed, *observer, *count, *given, *original = Py_None;
    size_t at = 0, num = sizeof hook_table / sizeof *hook_table;
    if (!PyArg_ParseTuple(args, "sbO!O!OOO!O!|O", &what, &kind, rows_type, &rows, sites_type, &sites, &failed, &observer,
                          counts_type, &count, &PyTuple_Type, &given, &original))
        return NULL;
    while (at < num && strcmp(hook_table[at].name, what) != 0)
        at++;
    if (at == num || PyTuple_GET_SIZE(given) != hook_table[at].num_given || (original != Py_None) != hook_table[at].whole) {
        PyErr_Format(PyExc_ValueError, "no such hook, or not with %zd given: %s", PyTuple_GET_SIZE(given), what);
        return NULL;
    }
    Hook *self = (Hook *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->call = hook_table[at].call;
    self->kind = kind;
    self->rows = (Rows *)Py_NewRef(rows);
    self->sites = (Sites *)Py_NewRef(sites);
    self->count = (Counts *)Py_NewRef(count);
    self->original = original == Py_None ? NULL : Py_NewRef(original);
    self->owner = PyObject_GetAttrString(observer, "owner");
    self->failed = Py_NewRef(failed);
    self->observer = Py_NewRef(observer);
    self->training = PyUnicode_InternFromString("training");
    self->compiled = PyUnicode_InternFromString("_compiled_call_impl");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++)
        self->given[i] = Py_NewRef(PyTuple_GET_ITEM(given, i));
    if (self->owner == NULL || self->training == NULL || self->compiled == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    if (!PyList_CheckExact(self->owner) || PyList_GET_SIZE(self->owner) != 1) {
        PyErr_SetString(PyExc_TypeError, "the owner of a switch is a list of one");
        Py_DECREF(self);
        return NULL;
    }
    self->owner_at = ((PyListObject *)self->owner)->ob_item;
    return (PyObject *)self;
}

static int hook_traverse(PyObject *object, visitproc visit, void *arg)
{
    Hook *self = (Hook *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)self->rows);
    Py_VISIT((PyObject *)self->sites);
    Py_VISIT((PyObject *)self->count);
    Py_VISIT(self->original);
    Py_VISIT(self->owner);
    Py_VISIT(self->names);
    Py_VISIT(self->failed);
    Py_VISIT(self->observer);
    for (int i = 0; i < NUM_GIVEN; i++)
        Py_VISIT(self->given[i]);
    return 0;
}

static int hook_clear(PyObject *object)
{
    Hook *self = (Hook *)object;
    detach(self);
    Py_CLEAR(self->rows);
    Py_CLEAR(self->sites);
    Py_CLEAR(self->count);
    Py_CLEAR(self->original);
    Py_CLEAR(self->owner);
    Py_CLEAR(self->names);
    Py_CLEAR(self->failed);
    Py_CLEAR(self->observer);
    for (int i = 0; i < NUM_GIVEN; i++)
        Py_CLEAR(self->given[i]);
    return 0;
}

static void hook_dealloc(PyObject *object)
{
    Hook *self = (Hook *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    detach(self); /* before anything that may run Python, which could call it */
    if (self->weak != NULL)
        PyObject_ClearWeakRefs(object);
    hook_clear(object);
    Py_CLEAR(self->training);
    Py_CLEAR(self->compiled);
    Py_CLEAR(self->ident_of);
    type->tp_free(object);
    Py_DECREF(type);
}

/* As a function in a class: called on an object, it gets it first. */
static PyObject *hook_get(PyObject *object, PyObject *instance, PyObject *type)
{
    if (((Hook *)object)->original == NULL || instance == NULL || instance == Py_None)
        return Py_NewRef(object);
    return PyMethod_New(object, instance);
}

/* Pickled as a function is: by its name. */
static PyObject *hook_reduce(PyObject *object, PyObject *unused)
{
    return PyObject_GetAttrString(object, "__qualname__");
}

static PyMethodDef hook_methods[] = {
    {"__reduce__", hook_reduce, METH_NOARGS, "__reduce__() -> str: the name to import."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef hook_members[] = {
    {"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(Hook, call), Py_READONLY, NULL},
    {"__dictoffset__", Py_T_PYSSIZET, offsetof(Hook, names), Py_READONLY, NULL},
    {"__weaklistoffset__", Py_T_PYSSIZET, offsetof(Hook, weak), Py_READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef hook_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, "What a wrapper has of its original.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot hook_slots[] = {
    {Py_tp_doc, "Hook(what, kind, rows, sites, failed, switch, count, given, original=None), see _hooks.c."},
    {Py_tp_new, hook_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, hook_traverse},
    {Py_tp_clear, hook_clear},
    {Py_tp_dealloc, hook_dealloc},
    {Py_tp_descr_get, hook_get},
    {Py_tp_methods, hook_methods},
    {Py_tp_members, hook_members},
    {Py_tp_getset, hook_getset},
    {0, NULL},
};

static PyType_Spec hook_spec = {
    .name = "hotloop._fast.Hook",
    .basicsize = sizeof(Hook),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .slots = hook_slots,
};

#endif
