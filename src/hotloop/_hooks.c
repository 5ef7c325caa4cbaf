/* What the wrappers of probe/observers do behind each call, part of _fast.c: clock, call site, row, counts.

   Hook(what, kind, rows, sites, failed, switch, count, given) does what `what` names; `given` are the Python
   functions and tables it asks. The Python of each stands in its observer, and decides what is right. A hook runs
   directly under a wrapper, whose caller's frame is the site; an Exception inside goes to failed(switch, error).
*/

#ifdef __linux__ /* where perf_counter_ns reads this clock */
#include <time.h>
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
    long long backwards, batches, rounds, fed_at, fetched, updates, callbacks, next_tick, opened, opened_at, opened_site;
} Counts;

typedef struct { /* probe/observers/modules.py, Entry */
    PyObject_HEAD
    long long id, flags, noted;
} Entry;

typedef struct { /* probe/observers/loaders.py, Iterator */
    PyObject_HEAD
    long long id, flags, full, num_batches, before, yielded;
} Feed;

#define NUMBER(type, name) {#name, Py_T_LONGLONG, offsetof(type, name), 0, NULL}

static PyMemberDef counts_members[] = {
    NUMBER(Counts, backwards), NUMBER(Counts, batches), NUMBER(Counts, rounds), NUMBER(Counts, fed_at),
    NUMBER(Counts, fetched), NUMBER(Counts, updates), NUMBER(Counts, callbacks), NUMBER(Counts, next_tick),
    NUMBER(Counts, opened), NUMBER(Counts, opened_at), NUMBER(Counts, opened_site), {NULL, 0, 0, 0, NULL},
};
static PyMemberDef entry_members[] = {
    NUMBER(Entry, id), NUMBER(Entry, flags), NUMBER(Entry, noted), {NULL, 0, 0, 0, NULL},
};
static PyMemberDef feed_members[] = {
    NUMBER(Feed, id), NUMBER(Feed, flags), NUMBER(Feed, full), NUMBER(Feed, num_batches), NUMBER(Feed, before),
    NUMBER(Feed, yielded), {NULL, 0, 0, 0, NULL},
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

/* ---- hooks --------------------------------------------------------------------------------------------------- */

#define NUM_GIVEN 6

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Rows *rows;
    Sites *sites;
    Counts *count;
    PyObject *failed, *observer, *getframe, *one, *training, *compiled;
    PyObject *given[NUM_GIVEN];
    uint64_t since;
    uint8_t kind;
} Hook;

/* What a hook returns: an Exception is the observer's own failure, anything else belongs to the script. */
static PyObject *over(Hook *self, int good)
{
    if (good)
        Py_RETURN_NONE;
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return NULL;
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL)
        PyException_SetTraceback(error, trace);
    PyObject *done = PyObject_CallFunctionObjArgs(self->failed, self->observer, error, NULL);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    return done;
}

/* Call and let go of what it returns. Takes over nothing. */
static int ask(PyObject *function, PyObject *one, PyObject *two)
{
    PyObject *done = PyObject_CallFunctionObjArgs(function, one, two, NULL);
    Py_XDECREF(done);
    return done != NULL;
}

/* Whether a function without arguments says yes; -1: it failed. */
static int says(PyObject *function)
{
    PyObject *found = PyObject_CallNoArgs(function);
    int yes = found == NULL ? -1 : PyObject_IsTrue(found);
    Py_XDECREF(found);
    return yes;
}

/* Negative numbers are 0, as in a row: a queue may count fewer batches than were asked for. 0 with an error. */
static int unsigned_of(PyObject *number, uint64_t *value)
{
    int beyond;
    long long found = PyLong_AsLongLongAndOverflow(number, &beyond);
    *value = beyond > 0 ? PyLong_AsUnsignedLongLong(number) : (uint64_t)(found < 0 ? 0 : found);
    return !PyErr_Occurred();
}

/* The caller of the wrapper that called us. */
static PyObject *caller(Hook *self)
{
    return PyObject_CallOneArg(self->getframe, self->one);
}

static int site_here(Hook *self, long *site)
{
    PyObject *frame = caller(self);
    *site = frame == NULL ? -1 : sites_find(self->sites, frame);
    Py_XDECREF(frame);
    return *site >= 0;
}

static int takes(PyObject *const *args, size_t nargsf, PyObject *names, Py_ssize_t num)
{
    if (PyVectorcall_NARGS(nargsf) == num && (names == NULL || PyTuple_GET_SIZE(names) == 0))
        return 1;
    PyErr_SetString(PyExc_TypeError, "a hook got other arguments than it takes");
    return 0;
}

/* cleared(start) */
static PyObject *hook_cleared(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Hook *self = (Hook *)object;
    uint64_t stop = now_ns(), start;
    long site;
    return over(self, takes(args, nargsf, names, 1) && unsigned_of(args[0], &start) && site_here(self, &site) &&
        rows_put(self->rows, self->kind, start, stop - start, 0, site, 0, 0, 0));
}

/* called(module, start). given: known, new_entry, note, grad_enabled, autocast, autocasted */
static int called(Hook *self, PyObject *module, PyObject *begun, uint64_t stop)
{
    uint64_t start, flags;
    long site;
    PyObject *key = PyLong_FromVoidPtr(module);
    PyObject *entry = key == NULL ? NULL : PyDict_GetItemWithError(self->given[0], key);
    Py_XDECREF(key);
    Py_XINCREF(entry);
    if (entry == NULL && !PyErr_Occurred())
        entry = PyObject_CallOneArg(self->given[1], module);
    if (entry == NULL)
        return 0;
    PyObject *compiled = NULL, *training = NULL, *seen = NULL;
    int good = 0, grad, trains, autocast;
    if (!PyObject_TypeCheck(entry, entry_type)) {
        PyErr_SetString(PyExc_TypeError, "not an entry");
        goto end;
    }
    flags = (uint64_t)((Entry *)entry)->flags;
    if ((grad = says(self->given[3])) < 0 || (training = PyObject_GetAttr(module, self->training)) == NULL ||
        (trains = PyObject_IsTrue(training)) < 0)
        goto end;
    flags |= (grad ? 0x01 : 0) | (trains ? 0x02 : 0); /* FORWARD_GRAD, FORWARD_TRAINING */
    if ((autocast = says(self->given[4])) < 0)
        goto end;
    if (autocast && ((seen = PyObject_CallFunction(self->given[5], "K", (unsigned long long)flags)) == NULL || !unsigned_of(seen, &flags)))
        goto end;
    if ((compiled = PyObject_GetAttr(module, self->compiled)) == NULL)
        goto end;
    flags |= compiled != Py_None ? 0x10 : 0; /* FORWARD_COMPILED */
    if (!((Entry *)entry)->noted && !ask(self->given[2], module, entry))
        goto end;
    good = unsigned_of(begun, &start) && site_here(self, &site) &&
        rows_put(self->rows, self->kind, start, stop - start, 0, site, (uint64_t)((Entry *)entry)->id, 0, flags);
end:
    Py_XDECREF(compiled);
    Py_XDECREF(training);
    Py_XDECREF(seen);
    Py_DECREF(entry);
    return good;
}

static PyObject *hook_called(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    uint64_t stop = now_ns();
    return over((Hook *)object, takes(args, nargsf, names, 2) && called((Hook *)object, args[0], args[1], stop));
}

static int tick(Hook *self, PyObject *function, uint64_t stop)
{
    PyObject *at = PyLong_FromUnsignedLongLong(stop);
    int good = at != NULL && ask(function, at, NULL);
    Py_XDECREF(at);
    return good;
}

/* went_backward(args, kwargs, start). given: every_loss, loss_stride, read_loss, tick */
static int went_backward(Hook *self, PyObject *const *args, uint64_t stop)
{
    Counts *count = self->count;
    uint64_t start, every, stride;
    long site;
    if (!unsigned_of(args[2], &start) || !unsigned_of(self->given[0], &every) || !unsigned_of(self->given[1], &stride) ||
        !site_here(self, &site) || !rows_put(self->rows, self->kind, start, stop - start, 0, site, 0, 0, 0))
        return 0;
    uint64_t number = (uint64_t)++count->backwards;
    if (count->fetched) {
        count->fetched = 0;
        count->batches++;
        count->fed_at = count->rounds;
    }
    if (!count->rounds && (long long)stop >= count->next_tick && !tick(self, self->given[3], stop))
        return 0;
    if (number > every && number % stride)
        return 1;
    PyObject *done = PyObject_CallFunction(self->given[2], "OOKl", args[0], args[1], (unsigned long long)stop, site);
    Py_XDECREF(done);
    return done != NULL;
}

static PyObject *hook_went_backward(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    uint64_t stop = now_ns();
    return over((Hook *)object, takes(args, nargsf, names, 3) && went_backward((Hook *)object, args, stop));
}

/* began(optimizer). given: nested */
static int began(Hook *self, PyObject *optimizer)
{
    Counts *count = self->count;
    PyObject *frame = caller(self);
    if (frame == NULL)
        return 0;
    PyObject *nested = count->opened ? PyObject_CallOneArg(self->given[0], frame) : Py_NewRef(Py_False);
    int inside = nested == NULL ? -1 : PyObject_IsTrue(nested);
    long site = inside == 0 ? sites_find(self->sites, frame) : inside;
    Py_XDECREF(nested);
    Py_DECREF(frame);
    if (inside != 0 || site < 0)
        return inside == 1;
    count->opened = (long long)(uintptr_t)optimizer;
    count->opened_site = site;
    count->opened_at = (long long)now_ns();
    return 1;
}

static PyObject *hook_began(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    return over((Hook *)object, takes(args, nargsf, names, 1) && began((Hook *)object, args[0]));
}

/* stepped(optimizer). given: known, new, rounds, updated, tick */
static int stepped(Hook *self, PyObject *optimizer, uint64_t stop)
{
    Counts *count = self->count;
    PyObject *round = self->given[2], *number = NULL;
    if (count->opened != (long long)(uintptr_t)optimizer)
        return 1;
    count->opened = 0;
    PyObject *key = PyLong_FromVoidPtr(optimizer);
    int good = 0, again;
    uint64_t id;
    if (key == NULL)
        return 0;
    number = Py_XNewRef(PyDict_GetItemWithError(self->given[0], key));
    if (number == NULL && !PyErr_Occurred())
        number = PyObject_CallFunction(self->given[1], "OL", optimizer, count->opened_site);
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
    uint64_t stop = now_ns();
    return over((Hook *)object, takes(args, nargsf, names, 1) && stepped((Hook *)object, args[0], stop));
}

/* fetched(state, waiting, start, result). given: raised, ended, samples_in, note_batch, note_every */
static int fetched(Hook *self, PyObject *const *args, uint64_t stop)
{
    uint64_t start, waiting, samples, every;
    long site;
    Feed *feed = (Feed *)args[0];
    if (!PyObject_TypeCheck(args[0], feed_type)) {
        PyErr_SetString(PyExc_TypeError, "not an iterator's numbers");
        return 0;
    }
    if (!unsigned_of(args[1], &waiting) || !unsigned_of(args[2], &start) || !site_here(self, &site))
        return 0;
    if (args[3] == self->given[0]) {
        PyObject *done = PyObject_CallFunction(self->given[1], "OKlKK", args[0], (unsigned long long)waiting, site,
                                               (unsigned long long)start, (unsigned long long)stop);
        Py_XDECREF(done);
        return done != NULL;
    }
    feed->yielded++;
    samples = (uint64_t)feed->full;
    if (!samples || feed->yielded == feed->num_batches) {
        PyObject *found = PyObject_CallFunctionObjArgs(self->given[2], args[0], args[3], NULL);
        int good = found != NULL && unsigned_of(found, &samples);
        Py_XDECREF(found);
        if (!good)
            return 0;
    }
    if (!rows_put(self->rows, self->kind, start, stop - start, samples, site, (uint64_t)feed->id, waiting, (uint64_t)feed->flags))
        return 0;
    self->count->fetched = 1;
    uint64_t number = (uint64_t)(feed->before + feed->yielded);
    if (!unsigned_of(self->given[4], &every))
        return 0;
    return number % every != 1 || (number >= 10 * every && number % (10 * every) != 1) || ask(self->given[3], args[0], args[3]);
}

static PyObject *hook_fetched(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    uint64_t stop = now_ns();
    return over((Hook *)object, takes(args, nargsf, names, 4) && fetched((Hook *)object, args, stop));
}

/* Whether the calling thread is the one in a list of one. */
static int recorded(PyObject *owner)
{
    uint64_t ident;
    if (!PyList_Check(owner) || PyList_GET_SIZE(owner) < 1) {
        PyErr_SetString(PyExc_TypeError, "not a list of one");
        return -1;
    }
    return unsigned_of(PyList_GET_ITEM(owner, 0), &ident) ? ident == PyThread_get_thread_ident() : -1;
}

/* begin(owner): the time, 0 in a thread that is not recorded. */
static PyObject *begin(PyObject *module, PyObject *owner)
{
    int ours = recorded(owner);
    return ours < 0 ? NULL : PyLong_FromUnsignedLongLong(ours ? now_ns() : 0);
}

/* collected(phase, info). given: owner, worth_a_row_ns */
static int collected(Hook *self, PyObject *phase, PyObject *info, uint64_t now)
{
    uint64_t start = self->since, worth, generation;
    self->since = 0;
    if (PyUnicode_Check(phase) && PyUnicode_CompareWithASCIIString(phase, "start") == 0) {
        self->since = now;
        return 1;
    }
    int ours = start ? recorded(self->given[0]) : 0;
    PyObject *found = ours > 0 ? PyMapping_GetItemString(info, "generation") : NULL;
    int good = found == NULL ? ours == 0 : unsigned_of(found, &generation) && unsigned_of(self->given[1], &worth) &&
        ((generation != 2 && now - start < worth) || rows_put(self->rows, self->kind, start, now - start, generation, 0, 0, 0, 0));
    Py_XDECREF(found);
    return good;
}

static PyObject *hook_collected(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    uint64_t now = now_ns();
    return over((Hook *)object, takes(args, nargsf, names, 2) && collected((Hook *)object, args[0], args[1], now));
}

static const struct {
    const char *name;
    vectorcallfunc call;
    int num_given;
} hook_table[] = {
    {"cleared", hook_cleared, 0}, {"called", hook_called, 6}, {"went_backward", hook_went_backward, 4},
    {"began", hook_began, 1}, {"stepped", hook_stepped, 5}, {"fetched", hook_fetched, 5}, {"collected", hook_collected, 2},
};

static PyObject *hook_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    const char *what;
    unsigned char kind;
    PyObject *rows, *sites, *failed, *observer, *count, *given;
    size_t at = 0, num = sizeof hook_table / sizeof *hook_table;
    if (!PyArg_ParseTuple(args, "sbO!O!OOO!O!", &what, &kind, rows_type, &rows, sites_type, &sites, &failed, &observer,
                          counts_type, &count, &PyTuple_Type, &given))
        return NULL;
    while (at < num && strcmp(hook_table[at].name, what) != 0)
        at++;
    if (at == num || PyTuple_GET_SIZE(given) != hook_table[at].num_given) {
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
    self->failed = Py_NewRef(failed);
    self->observer = Py_NewRef(observer);
    self->getframe = Py_XNewRef(PySys_GetObject("_getframe"));
    self->one = PyLong_FromLong(1);
    self->training = PyUnicode_InternFromString("training");
    self->compiled = PyUnicode_InternFromString("_compiled_call_impl");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++)
        self->given[i] = Py_NewRef(PyTuple_GET_ITEM(given, i));
    if (self->getframe == NULL || self->one == NULL || self->training == NULL || self->compiled == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_RuntimeError, "no sys._getframe");
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int hook_traverse(PyObject *object, visitproc visit, void *arg)
{
    Hook *self = (Hook *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)self->rows);
    Py_VISIT((PyObject *)self->sites);
    Py_VISIT((PyObject *)self->count);
    Py_VISIT(self->failed);
    Py_VISIT(self->observer);
    Py_VISIT(self->getframe);
    for (int i = 0; i < NUM_GIVEN; i++)
        Py_VISIT(self->given[i]);
    return 0;
}

static int hook_clear(PyObject *object)
{
    Hook *self = (Hook *)object;
    Py_CLEAR(self->rows);
    Py_CLEAR(self->sites);
    Py_CLEAR(self->count);
    Py_CLEAR(self->failed);
    Py_CLEAR(self->observer);
    Py_CLEAR(self->getframe);
    for (int i = 0; i < NUM_GIVEN; i++)
        Py_CLEAR(self->given[i]);
    return 0;
}

static void hook_dealloc(PyObject *object)
{
    Hook *self = (Hook *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    hook_clear(object);
    Py_CLEAR(self->one);
    Py_CLEAR(self->training);
    Py_CLEAR(self->compiled);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef hook_members[] = {
    {"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(Hook, call), Py_READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot hook_slots[] = {
    {Py_tp_doc, "Hook(what, kind, rows, sites, failed, switch, count, given), see _hooks.c."},
    {Py_tp_new, hook_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, hook_traverse},
    {Py_tp_clear, hook_clear},
    {Py_tp_dealloc, hook_dealloc},
    {Py_tp_members, hook_members},
    {0, NULL},
};

static PyType_Spec hook_spec = {
    .name = "hotloop._fast.Hook",
    .basicsize = sizeof(Hook),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = hook_slots,
};

#endif
