import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.JavaPairRDD;
import scala.Tuple2;

/**
 * PageRank: links are read and kept in memory, then each iteration shuffles all ranks.
 *
 * <p>Ranks are whole numbers of {@link #UNIT}ths, so that sums do not depend on the order of addition.
 */
public final class PageRank {
    private static final long UNIT = 1_000_000_000L;

    private PageRank() {}

    /** See {@link Application#run}; a line of input is "from to", two addresses that end with a number. */
    public static void main(String[] arguments) throws IOException {
        int partitions = Application.number("partitions");
        int iterations = Application.number("iterations");
        Application.run(arguments, (spark, input, output) -> {
            JavaPairRDD<Integer, Iterable<Integer>> links = Application.lines(spark, input, partitions)
                    .mapToPair(PageRank::edge)
                    .groupByKey(partitions)
                    .cache();
            JavaPairRDD<Integer, Long> ranks = links.mapValues(targets -> UNIT);
            for (int iteration = 0; iteration < iterations; iteration++) {
                ranks = links.join(ranks, partitions)
                        .values()
                        .flatMapToPair(PageRank::contributions)
                        .reduceByKey(Long::sum, partitions)
                        .mapValues(sum -> (15 * UNIT + 85 * sum) / 100);
            }
            ranks.cache();
            long digest = ranks.map(pair -> Application.digest(pair._1() + " " + pair._2())).reduce(Long::sum);
            return ranks.count() + " pages " + Long.toHexString(digest);
        });
    }

    private static Tuple2<Integer, Integer> edge(String line) {
        int space = line.indexOf(' ');
        return new Tuple2<>(number(line.substring(0, space)), number(line.substring(space + 1)));
    }

    private static Integer number(String address) {
        return Integer.valueOf(address.substring(address.lastIndexOf('/') + 1));
    }

    private static Iterator<Tuple2<Integer, Long>> contributions(Tuple2<Iterable<Integer>, Long> linked) {
        List<Integer> targets = new ArrayList<>();
        linked._1().forEach(targets::add);
        List<Tuple2<Integer, Long>> given = new ArrayList<>();
        for (Integer target : targets) {
            given.add(new Tuple2<>(target, linked._2() / targets.size()));
        }
        return given.iterator();
    }
}
